// What the bit-contract costs: three rules that break it, measured beside it in one run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "bench/cuda/checks.h"
#include "bench/cuda/relaxations/cublas_lt.h"
#include "bench/cuda/relaxations/products.h"

namespace flotilla::cuda_check {
namespace {

constexpr int kLayers = 60, kSets = 6;

double percent(double ours, double other) { return (ours / other - 1) * 100; }

class Relaxations {
 public:
  explicit Relaxations(const std::string& cublas_lt) : products_(kSets), cublas_path_(cublas_lt) {}

  int run() {
    for (const int m : {16, 64}) verify(m);
    std::printf(
        "\nsingle products, us in a chain of %d (what leaving the contract would save)\n"
        "%5s %-8s %9s %9s %17s %17s %26s\n",
        kLayers, "rows", "product", "ours", "its form", "atomics", "last arriver",
        "best partition");
    for (const int m : {1, 4, 16, 64}) {
      for (int s = 0; s < static_cast<int>(products_.shapes().size()); ++s) single(m, s);
    }
    std::printf("\nall linears of a step in one graph, ms\n%5s %9s %9s %17s %17s %17s\n", "rows",
                "ours", "its form", "atomics", "last arriver", "best partition");
    for (const int m : {1, 4, 16, 64}) step(m);
    prefill();
    return failures_;
  }

 private:
  using Call = Products::Call;
  const ProductShape& shape(int s) const { return products_.shapes()[static_cast<std::size_t>(s)]; }

  // The other rules compute the same sums but for rounding, or their times mean nothing.
  void verify(int m) {
    for (int s = 0; s < 4; ++s) {
      const auto count = static_cast<std::size_t>(m) * static_cast<std::size_t>(shape(s).n[0]);
      const auto result = [&](const Call& call) {
        products_.clear_outputs();
        products_.launch(call);
        return products_.outputs(count);
      };
      Call call{.shape = s, .m = m, .y_is_f32 = true};
      const std::vector<float> ours = result(call);
      call.as_shipped = false;
      for (const Pieces pieces : {Pieces::kInOrder, Pieces::kAtomics, Pieces::kLastArriver}) {
        call.pieces = pieces;
        double difference = 0, norm = 0;
        int changed = 0;
        std::vector<float> first;
        for (int round = 0; round < 10; ++round) {
          const std::vector<float> got = result(call);
          if (round == 0) first = got;
          changed += std::memcmp(first.data(), got.data(), count * 4) != 0 ? 1 : 0;
          for (std::size_t i = 0; i < count && round == 0; ++i) {
            difference += std::pow(static_cast<double>(got[i]) - ours[i], 2);
            norm += std::pow(static_cast<double>(ours[i]), 2);
          }
        }
        const double error = std::sqrt(difference / norm);
        const bool exact = pieces == Pieces::kInOrder;
        const bool good = exact ? error == 0 && changed == 0 : error < 1e-5;
        std::printf("  %-8s %2d rows, %-12s off by %.1e, other bits in %d of 9 repeats%s\n",
                    shape(s).name.c_str(), m,
                    exact                        ? "in order"
                    : pieces == Pieces::kAtomics ? "atomics"
                                                 : "last arriver",
                    error, changed, good ? "" : " FAILED");
        failures_ += good ? 0 : 1;
      }
    }
  }

  double time_single(Call call) {
    const int launches = shape(call.shape).per_step == 1 ? 6 : kLayers;
    return products_.seconds(4, [&] {
      for (int i = 0; i < launches; ++i) {
        call.set = i;
        products_.launch(call);
      }
    }) / launches;
  }

  // Numbers of pieces that could suit: whole row blocks, halves, thirds, and round numbers.
  std::set<int> partitions(int s) const {
    const int blocks = shape(s).row_blocks(), most = 2 * products_.multiprocessors();
    std::set<int> out = {132, 176, 192, 198, 216, 220, 240, 252, 256, most};
    for (int i = 1; i <= 8; ++i) {
      if (blocks * i <= most) out.insert(blocks * i);
      if (blocks / i >= 64) out.insert((blocks + i - 1) / i);
    }
    std::erase_if(out, [&](int procs) { return procs > most; });
    return out;
  }

  void single(int m, int s) {
    double ours = time_single({.shape = s, .m = m});
    const double form = time_single({.shape = s, .m = m, .as_shipped = false});
    const double atomics = time_single(
        {.shape = s, .m = m, .as_shipped = false, .pieces = Pieces::kAtomics, .y_is_f32 = true});
    const double last =
        time_single({.shape = s, .m = m, .as_shipped = false, .pieces = Pieces::kLastArriver});
    double best = ours;
    int procs = 0;
    for (const int candidate : partitions(s)) {
      const double time = time_single({.shape = s, .m = m, .procs = candidate});
      if (time < best) best = time, procs = candidate;
    }
    ours = std::min(ours, time_single({.shape = s, .m = m}));  // the best of many had more chances
    chosen_[m == 1 ? 0 : m == 4 ? 1 : m == 16 ? 2 : 3][s] = procs;
    std::printf(
        "%5d %-8s %9.2f %9.2f %9.2f (%4.1f%%) %9.2f (%4.1f%%) %9.2f (%4.1f%%), %3d pieces\n", m,
        shape(s).name.c_str(), ours * 1e6, form * 1e6, atomics * 1e6, percent(form, atomics),
        last * 1e6, percent(form, last), best * 1e6, percent(ours, best),
        procs == 0 ? products_.usual_procs(shape(s)) : procs);
    std::fflush(stdout);
  }

  void step(int m) {
    const int* procs = chosen_[m == 1 ? 0 : m == 4 ? 1 : m == 16 ? 2 : 3];
    const auto chain = [&](Call call, bool choose) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int s = 0; s < 4; ++s) {
          call.shape = s, call.set = layer, call.procs = choose ? procs[s] : 0;
          products_.launch(call);
        }
      }
      call.shape = 4, call.procs = choose ? procs[4] : 0;
      products_.launch(call);
    };
    const Call usual{.m = m};
    const Call form{.m = m, .as_shipped = false};
    const Call atomics{.m = m, .as_shipped = false, .pieces = Pieces::kAtomics, .y_is_f32 = true};
    const Call last{.m = m, .as_shipped = false, .pieces = Pieces::kLastArriver};
    double times[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < 3; ++round) {  // in turns: the card's clock wanders
      const auto better = [&](int i, const Call& call, bool choose) {
        times[i] = std::min(times[i], products_.seconds(4, [&] { chain(call, choose); }));
      };
      better(0, usual, false);
      better(1, form, false);
      better(2, atomics, false);
      better(3, last, false);
      better(4, usual, true);
    }
    std::printf("%5d %9.3f %9.3f %9.3f (%4.1f%%) %9.3f (%4.1f%%) %9.3f (%4.1f%%)\n", m,
                times[0] * 1e3, times[1] * 1e3, times[2] * 1e3, percent(times[1], times[2]),
                times[3] * 1e3, percent(times[1], times[3]), times[4] * 1e3,
                percent(times[0], times[4]));
    std::fflush(stdout);
  }

  void prefill() {
    auto cublas = open_cublas_lt(cublas_path_);
    if (!cublas.ok()) {
      std::printf("\ncuBLASLt: %s: skipped\n", cublas.error().message.c_str());
    } else {
      std::printf("\ncuBLASLt: %s\n", (*cublas)->where().c_str());
    }
    std::printf("%6s %-8s %19s %28s %28s\n", "tokens", "product", "ours us [TFLOP/s]",
                "without pieces", "cuBLASLt, bf16 weights");
    const CardBuffer dense(std::size_t{43008} * 5376 * 2);
    check(device::synthesize_blocks(device::BlockFormat::kDense, dense.as<std::uint8_t>(), 43008,
                                    5376, 3, products_.stream()));
    for (const int m : {512, 2048, 4096}) {
      double sums[3] = {};
      for (int s = 0; s < 4; ++s) {
        const ProductShape& p = shape(s);
        int tried = -1;
        if (cublas.ok())
          tried = (*cublas)->choose(dense.as<void>(), products_.x(), products_.y(), p.rows(), p.k,
                                    m, products_.stream());
        double times[3] = {1e9, 1e9, tried > 0 ? 1e9 : 0};
        for (int round = 0; round < 5; ++round) {
          const auto better = [&](int i, const std::function<void()>& work) {
            constexpr int kTimes = 3;
            const double time = products_.seconds_at_once([&] {
              for (int t = 0; t < kTimes; ++t) work();
            });
            if (round > 0) times[i] = std::min(times[i], time / kTimes);
          };
          Call call{.shape = s, .set = round, .m = m};
          better(0, [&] { products_.launch(call); });
          call.procs = 1;
          better(1, [&] { products_.launch(call); });
          if (tried > 0)
            better(2, [&] { failures_ += (*cublas)->run(products_.stream()) ? 0 : 1; });
        }
        for (int i = 0; i < 3; ++i) sums[i] += times[i];
        prefill_line(m, p.name, times, p.flops(m), tried);
      }
      double flops = 0;
      for (int s = 0; s < 4; ++s) flops += shape(s).flops(m);
      prefill_line(m, "layer", sums, flops, sums[2] > 0 ? 0 : -1);
    }
  }

  static void prefill_line(int m, const std::string& name, const double (&times)[3], double flops,
                           int tried) {
    std::printf("%6d %-8s %11.1f [%5.0f] %11.1f [%5.0f] (%5.1f%%)", m, name.c_str(), times[0] * 1e6,
                flops / times[0] * 1e-12, times[1] * 1e6, flops / times[1] * 1e-12,
                percent(times[0], times[1]));
    if (tried >= 0)
      std::printf(" %11.1f [%5.0f] (%5.1f%%)", times[2] * 1e6, flops / times[2] * 1e-12,
                  percent(times[0], times[2]));
    if (tried > 0) std::printf(" best of %d", tried);
    std::printf("\n");
    std::fflush(stdout);
  }

  Products products_;
  std::string cublas_path_;
  int chosen_[4][5] = {};
  int failures_ = 0;
};

}  // namespace

int measure_relaxations(const std::string& cublas_lt) {
  std::printf("what the bit-contract costs\n");
  return Relaxations(cublas_lt).run();
}

}  // namespace flotilla::cuda_check
