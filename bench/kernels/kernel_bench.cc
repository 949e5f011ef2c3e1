// Speed of the CPU kernels beside a loop that only reads memory. Rounds are interleaved and medians
// printed, because machines are shared.
//
//   kernel_bench [--threads N] [--rounds N] [--target best|portable|avx2|avx512] [--what
//   linears,formats,attention,small]
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/backend/cpu/read_bandwidth.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace {

using namespace flotilla;           // NOLINT: a program
using namespace flotilla::backend;  // NOLINT

struct Options {
  int threads = 0;
  int rounds = 7;
  CpuTarget target = CpuTarget::kBest;
  int layers = 16;
  std::string what = "linears,formats,attention,small";
};
bool g_cpu_clock =
    false;  // processor time over threads: what remains comparable when the machine is busy

int g_threads = 1;

double now() {
  timespec t{};
  clock_gettime(g_cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  const double seconds = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  return g_cpu_clock ? seconds / g_threads : seconds;
}

double seconds_of(const std::function<void()>& f) {
  const double begin = now();
  f();
  return now() - begin;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::unique_ptr<Backend> make(const Options& o, bool pack) {
  auto made =
      make_cpu_backend({.num_threads = o.threads, .target = o.target, .pack_weights = pack});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", to_string(made.error()).c_str());
    std::exit(1);
  }
  return std::move(made).value();
}

// The linears of a model of one billion weights: 16 layers of 2048 / 8192 and a head of 32000.
struct Model {
  std::vector<std::unique_ptr<Matrix>> matrices;
  double weights = 0, bytes = 0;

  Model(Backend& backend, const MatrixKind& kind, int num_layers, bool with_head) {
    std::uint64_t seed = 1;
    const auto add = [&](std::int64_t n, std::int64_t k) {
      matrices.push_back(std::move(backend.prepare(fixed_matrix(kind, n, k, seed++))).value());
      weights += static_cast<double>(n) * static_cast<double>(k);
      bytes += static_cast<double>(matrices.back()->resident_bytes());
    };
    for (int layer = 0; layer < num_layers; ++layer) {
      for (const std::int64_t n : {2048, 512, 512, 2048, 8192, 8192}) add(n, 2048);
      add(2048, 8192);
    }
    if (with_head) add(32000, 2048);
  }
  void run(Backend& backend, std::int64_t rows) const {
    for (const auto& m : matrices) {
      const Tensor x = backend.allocate({rows, m->k()}, tensor::DType::kF32);
      std::fill_n(x.data<float>(), rows * m->k(), 0.5f);
      (void)ops::linear(backend, *m, x);
    }
  }
};

void bench_linears(const Options& o) {
  const auto packing = make(o, true), storing = make(o, false);
  const MatrixKind kind{WeightFormat::kAffine, 4, 64};
  std::printf("linears, affine 4-bit group 64, %s\n", packing->capabilities().device.c_str());
  const Model packed(*packing, kind, o.layers, true), stored(*storing, kind, o.layers, true);
  std::printf("  %.2f G weights, %.0f MB\n", packed.weights * 1e-9, packed.bytes * 1e-6);
  std::printf("  rows  read GB/s | packed GB/s of read GMAC/s | stored GB/s of read GMAC/s\n");
  for (const std::int64_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 240}) {
    std::vector<double> read, p, s, p_ratio, s_ratio;
    for (int round = 0; round < (rows > 16 ? std::min(o.rounds, 3) : o.rounds); ++round) {
      read.push_back(measure_read_bandwidth(o.threads, 3));
      p.push_back(packed.bytes / seconds_of([&] { packed.run(*packing, rows); }));
      s.push_back(stored.bytes / seconds_of([&] { stored.run(*storing, rows); }));
      p_ratio.push_back(p.back() / read.back());
      s_ratio.push_back(s.back() / read.back());
    }
    const double macs = packed.weights * static_cast<double>(rows) / packed.bytes * 1e-9;
    std::printf("  %4d  %9.1f | %11.2f %7.2f %6.1f | %11.2f %7.2f %6.1f\n", static_cast<int>(rows),
                median(read) * 1e-9, median(p) * 1e-9, median(p_ratio), median(p) * macs,
                median(s) * 1e-9, median(s_ratio), median(s) * macs);
    std::fflush(stdout);
  }
}

void bench_formats(const Options& o) {
  const auto backend = make(o, true);
  std::printf("formats, two layers, %s\n", backend->capabilities().device.c_str());
  std::printf("  %-16s  GB/s and GMAC/s at 1 row | at 6 rows | at 64 rows\n", "format");
  for (const MatrixKind& kind : all_matrix_kinds()) {
    const Model model(*backend, kind, 2, false);
    std::printf("  %-16s", matrix_kind_name(kind).c_str());
    for (const std::int64_t rows : {1, 6, 64}) {
      std::vector<double> rate;
      for (int round = 0; round < o.rounds; ++round) {
        rate.push_back(1.0 / seconds_of([&] { model.run(*backend, rows); }));
      }
      std::printf("  %6.2f %6.1f |", model.bytes * median(rate) * 1e-9,
                  model.weights * static_cast<double>(rows) * median(rate) * 1e-9);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

void bench_attention(const Options& o) {
  const auto backend = make(o, true);
  std::printf("attention, %s\n", backend->capabilities().device.c_str());
  std::printf("  heads kv  dim context tokens |       ms   GB/s of pages  GMAC/s\n");
  struct Case {
    int heads, kv_heads, head_dim, context, tokens;
  };
  for (const Case c :
       {Case{8, 4, 256, 4096, 1}, Case{8, 1, 512, 4096, 1}, Case{32, 16, 256, 1024, 1},
        Case{8, 1, 256, 32768, 1}, Case{8, 4, 256, 4096, 64}, Case{8, 1, 512, 4096, 64},
        Case{16, 16, 128, 4096, 64}}) {
    const KvGeometry geometry{.num_kv_heads = c.kv_heads, .head_dim = c.head_dim};
    const FixedKv kv(geometry, 0, c.context / 32, 1);
    const KvRow row{0, c.tokens, c.context - c.tokens, kv.view()};
    const Tensor q = fixed_activations({c.tokens, c.heads, c.head_dim}, 2);
    std::vector<double> times;
    for (int round = 0; round < o.rounds; ++round) {
      times.push_back(seconds_of([&] {
        (void)ops::attention(*backend, q, geometry, {&row, 1}, 0, 0.1f);
      }));
    }
    const double t = median(times), keys = c.context - 0.5 * c.tokens;
    const double pages = 2.0 * c.kv_heads * c.head_dim * c.context * 4.0;
    std::printf("  %5d %2d %4d %7d %6d | %8.3f %15.2f %7.1f\n", c.heads, c.kv_heads, c.head_dim,
                c.context, c.tokens, t * 1e3, pages / t * 1e-9,
                2.0 * keys * c.head_dim * c.heads * c.tokens / t * 1e-9);
    std::fflush(stdout);
  }
}

// What a layer does beside its products, at one row and at many.
void bench_small(const Options& o) {
  const auto backend = make(o, true);
  std::printf("small operations, hidden 2048, feed-forward 8192, microseconds, %s\n",
              backend->capabilities().device.c_str());
  for (const std::int64_t rows : {1, 8, 512}) {
    const Tensor x = fixed_activations({rows, 2048}, 1), weight = fixed_activations({2048}, 2);
    const Tensor gate = fixed_activations({rows, 8192}, 3), up = fixed_activations({rows, 8192}, 4);
    const Tensor heads = fixed_activations({rows, 8, 256}, 5);
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(rows), 4000);
    std::vector<float> frequencies;
    for (int i = 0; i < 128; ++i) frequencies.push_back(std::exp2f(static_cast<float>(-i) / 10.0f));
    const auto report = [&](const char* name, const std::function<void()>& f) {
      std::vector<double> times;
      for (int i = 0; i < 20 * o.rounds; ++i) times.push_back(seconds_of(f));
      std::printf("  %4d rows  %-12s %9.1f\n", static_cast<int>(rows), name, median(times) * 1e6);
    };
    report("rms_norm", [&] { (void)ops::rms_norm(*backend, x, weight, 1e-6f); });
    report("norm_add", [&] { ops::norm_add(*backend, x, weight, 1e-6f, 0.5f, x); });
    report("gelu_mul", [&] { (void)ops::gelu_mul(*backend, gate, up); });
    report("rope", [&] { ops::rope(*backend, heads, positions, frequencies); });
    report("softcap", [&] { ops::softcap(*backend, gate, 30.0f); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--threads") {
      o.threads = std::atoi(argv[i + 1]);
    } else if (name == "--rounds") {
      o.rounds = std::max(1, std::atoi(argv[i + 1]));
    } else if (name == "--target") {
      o.target = value == "portable" ? CpuTarget::kScalar
                 : value == "avx2"   ? CpuTarget::kAvx2
                 : value == "avx512" ? CpuTarget::kAvx512
                                     : CpuTarget::kBest;
    } else if (name == "--layers") {
      o.layers = std::max(1, std::atoi(argv[i + 1]));
    } else if (name == "--clock") {
      g_cpu_clock = value == "cpu";
    } else if (name == "--what") {
      o.what = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  g_threads = make(o, false)->capabilities().num_threads;
  std::printf("read loop: %.1f GB/s\n", measure_read_bandwidth(o.threads) * 1e-9);
  if (o.what.find("linears") != std::string::npos) bench_linears(o);
  if (o.what.find("formats") != std::string::npos) bench_formats(o);
  if (o.what.find("attention") != std::string::npos) bench_attention(o);
  if (o.what.find("small") != std::string::npos) bench_small(o);
  return 0;
}
