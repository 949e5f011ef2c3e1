// Tables of whole steps of the flagship: forward pass, head and greedy choice, tokens fed back.
#include <algorithm>
#include <chrono>

#include "check_util.h"
#include "checks.h"
#include "device_kv.h"
#include "flagship.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::cuda_check {
namespace {

using models::ForwardRow;
using models::WantsLogits;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Keys and values of one sequence that a decode step at `context` reads, bf16.
double kv_bytes(int layers, std::int64_t context) {
  double total = 0;
  for (int l = 0; l < layers; ++l) {
    total += (l + 1) % 6 == 0
                 ? static_cast<double>(context) * 4 * 512 * 4
                 : static_cast<double>(std::min<std::int64_t>(context, 1024)) * 16 * 256 * 4;
  }
  return total;
}

class Bench {
 public:
  Bench(Backend& backend, const FlagshipOptions& options)
      : backend_(backend),
        device_(*backend::cuda::cuda_device(backend)),
        options_(options),
        flagship_(make_flagship(backend, options.layers)),
        workspace_(flagship_.model->make_workspace()),
        noise_(on_card(backend, backend::fixed_activations({4096, 2048}, 9))),
        noise_bytes_(noise_.buffer(), 0, Shape{4096, 4096}, DType::kU8) {}

  void run() {
    if (options_.only_profile) return profile();
    const double rate = device_.read_bandwidth(std::size_t{8} << 30, 10);
    std::printf("reading alone: %.3f TB/s; weights read per step: %.3f GB\n", rate / 1e12,
                static_cast<double>(flagship_.weight_bytes) / 1e9);
    std::printf("%6s %8s %10s %10s %9s %9s\n", "rows", "context", "ms", "tokens/s", "floor ms",
                "of floor");
    for (const std::int64_t context : {128, 4096}) {
      for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64}) decode(rows, context, rate);
    }
    for (const std::int64_t tokens : {512, 4096}) prefill(tokens);
    profile();
    std::printf("reading alone, again: %.3f TB/s\n",
                device_.read_bandwidth(std::size_t{8} << 30, 10) / 1e12);
  }

 private:
  void decode(std::int64_t rows, std::int64_t context, double rate) {
    constexpr int kWarm = 4, kSteps = 60;
    std::vector<DeviceKv> kv;
    for (std::int64_t i = 0; i < rows; ++i)
      kv.emplace_back(backend_, flagship_.model->state_layout(), context + kWarm + kSteps, context,
                      noise_bytes_);
    std::vector<TokenId> next(static_cast<std::size_t>(rows), 5);
    auto position = static_cast<int>(context);
    const auto step = [&] {
      std::vector<ForwardRow> forward;
      for (std::size_t i = 0; i < kv.size(); ++i) {
        forward.push_back({.ids = std::span(&next[i], 1),
                           .first_position = position,
                           .wants_logits = WantsLogits::kLast,
                           .layers = kv[i].views()});
      }
      std::vector<TokenId> chosen(next.size());
      flagship_.model->forward(backend_, *workspace_, {.rows = forward, .greedy = chosen});
      next = chosen;
      ++position;
    };
    for (int i = 0; i < kWarm; ++i) step();
    std::vector<double> seconds;
    const double host_before = device_.replay_seconds();
    const std::uint64_t replays_before = device_.num_replays();
    for (int i = 0; i < kSteps; ++i) {
      const auto begin = Clock::now();
      step();
      seconds.push_back(seconds_since(begin));
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    const double floor = (static_cast<double>(flagship_.weight_bytes) +
                          static_cast<double>(rows) * kv_bytes(options_.layers, context)) /
                         rate;
    const double host = (device_.replay_seconds() - host_before) /
                        static_cast<double>(device_.num_replays() - replays_before);
    std::printf("%6lld %8lld %10.3f %10.1f %9.3f %8.1f%%   (%.3f to %.3f ms; processor %.3f ms)\n",
                static_cast<long long>(rows), static_cast<long long>(context), median * 1e3,
                static_cast<double>(rows) / median, floor * 1e3, 100 * floor / median,
                seconds.front() * 1e3, seconds.back() * 1e3, host * 1e3);
    std::fflush(stdout);
  }

  void prefill(std::int64_t tokens) {
    const DeviceKv kv(backend_, flagship_.model->state_layout(), tokens);
    std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<TokenId>((i * 7919 + 11) % 262144);
    std::vector<double> seconds;
    for (int i = 0; i < 4; ++i) {
      const ForwardRow row{.ids = ids,
                           .first_position = 0,
                           .wants_logits = WantsLogits::kLast,
                           .layers = kv.views()};
      TokenId chosen = 0;
      const auto begin = Clock::now();
      flagship_.model->forward(backend_, *workspace_,
                               {.rows = {&row, 1}, .greedy = std::span(&chosen, 1)});
      if (i > 0) seconds.push_back(seconds_since(begin));
    }
    std::sort(seconds.begin(), seconds.end());
    std::printf("prefill %lld tokens: %.1f ms, %.0f tokens/s\n", static_cast<long long>(tokens),
                seconds[1] * 1e3, static_cast<double>(tokens) / seconds[1]);
    std::fflush(stdout);
  }

  // Time of one operation, of many in a recorded step, on changing weights where there are some.
  template <class Op>
  void time_op(const char* name, std::int64_t m, Op&& op, int position = 128) {
    constexpr int kCalls = 60;
    // A step of an unknown model with one decoding row: recorded and replayed like any other.
    const std::uint64_t model = backend::new_model_number();
    const backend::KvRow row{.first_row = 0, .num_tokens = 1, .first_position = position, .kv = {}};
    const auto step = [&] {
      backend_.begin_step({.model = model, .rows = {&row, 1}, .num_wanted = m});
      for (int i = 0; i < kCalls; ++i) op(i);
      backend_.end_step();
    };
    for (int i = 0; i < 3; ++i) step();
    double best = 1e9;
    for (int i = 0; i < 5; ++i) best = std::min(best, device_.timed(step));
    std::printf("  %-34s %4lld rows %9.2f us\n", name, static_cast<long long>(m),
                best / kCalls * 1e6);
    std::fflush(stdout);
  }

  void profile() {
    std::printf("single operations, each 60 times in one recorded step\n");
    const auto weight = [&](std::int64_t n, std::int64_t k) {
      std::vector<std::unique_ptr<backend::Matrix>> out;
      for (std::uint64_t i = 0; i < 6; ++i) out.push_back(device_.synthetic_matrix(n, k, 900 + i));
      return out;
    };
    const auto gate = weight(21504, 5376), down = weight(5376, 21504);
    const auto gated = weight(43008, 5376);
    const auto q = weight(8192, 5376), k = weight(4096, 5376), o = weight(5376, 8192);
    const Tensor norm_weight = backend_.upload(backend::fixed_activations({5376}, 3));
    const Tensor head_norm = backend_.upload(backend::fixed_activations({256}, 3));
    const auto frequencies = std::vector<float>(128, 0.1f);
    for (const std::int64_t m : {1, 16, 32, 64, 4096}) {
      const Tensor x = on_card(backend_, backend::fixed_activations({m, 5376}, 1));
      const Tensor wide = on_card(backend_, backend::fixed_activations({m, 21504}, 2));
      const Tensor wide2 = on_card(backend_, backend::fixed_activations({m, 21504}, 2));
      const Tensor heads = on_card(backend_, backend::fixed_activations({m, 32, 256}, 4));
      const Tensor kv = on_card(backend_, backend::fixed_activations({m, 16, 256}, 5));
      const Tensor residual = backend_.upload(backend::fixed_activations({m, 5376}, 6));
      time_op("gate + up", m, [&](int i) {
        const backend::Matrix* w[] = {gate[static_cast<std::size_t>(i % 3)].get(),
                                      gate[static_cast<std::size_t>(i % 3 + 3)].get()};
        ops::linear_group(backend_, w, x);
      });
      time_op("down", m,
              [&](int i) { ops::linear(backend_, *down[static_cast<std::size_t>(i % 6)], wide); });
      time_op("q + k + v", m, [&](int i) {
        const auto j = static_cast<std::size_t>(i % 3);
        const backend::Matrix* w[] = {q[static_cast<std::size_t>(i % 6)].get(), k[j].get(),
                                      k[j + 3].get()};
        ops::linear_group(backend_, w, x);
      });
      time_op("o", m, [&](int i) {
        ops::linear(backend_, *o[static_cast<std::size_t>(i % 6)], heads.reshape({m, 8192}));
      });
      time_op("norm_add_norm", m, [&](int) {
        ops::norm_add_norm(backend_, x, norm_weight, 1e-6f, 1.0f, residual, norm_weight);
      });
      time_op("gelu_mul", m, [&](int) { ops::gelu_mul(backend_, wide2, wide); });
      const backend::KvGeometry geometry{.num_kv_heads = 16, .head_dim = 256};
      const int first = m == 1 ? 1100 : 0;
      const DevicePages pages(backend_, geometry, 0, (static_cast<int>(m) + 1100 + 31) / 32 + 1);
      std::vector<backend::KvRow> rows;
      std::vector<std::int32_t> positions;
      for (int t = 0; t < m; ++t) positions.push_back(first + t);
      rows.push_back({0, static_cast<int>(m), first, pages.view()});
      if (m > 1 && m <= 64) {  // one token each
        rows.clear();
        for (int t = 0; t < m; ++t) rows.push_back({t, 1, 1100, pages.view()});
      }
      const int last = rows.back().first_position + rows.back().num_tokens - 1;
      time_op(
          "attention_inputs, window layer", m,
          [&](int) {
            ops::attention_inputs(backend_, {.q = heads,
                                             .k = kv,
                                             .v = kv,
                                             .q_norm = head_norm,
                                             .k_norm = head_norm,
                                             .eps = 1e-6f,
                                             .positions = positions,
                                             .inverse_frequencies = frequencies,
                                             .geometry = geometry,
                                             .rows = rows,
                                             .window = 1024});
          },
          last);
      time_op(
          "attention, window layer", m,
          [&](int) { ops::attention(backend_, heads, geometry, rows, 1024, 1.0f); }, last);
      if (m > 64) continue;
      for (backend::KvRow& r : rows) r.first_position = 127;
      time_op(
          "attention, window layer, 128 keys", m,
          [&](int) { ops::attention(backend_, heads, geometry, rows, 1024, 1.0f); }, 127);
      // How operations do behind each other.
      const auto norm = [&] {
        return ops::norm_add_norm(backend_, x, norm_weight, 1e-6f, 1.0f, residual, norm_weight);
      };
      const auto gate_up = [&](int i, const Tensor& in) {
        const backend::Matrix* w[] = {gate[static_cast<std::size_t>(i % 3)].get(),
                                      gate[static_cast<std::size_t>(i % 3 + 3)].get()};
        return ops::linear_group(backend_, w, in);
      };
      const auto qkv = [&](int i, const Tensor& in) {
        const auto j = static_cast<std::size_t>(i % 3);
        const backend::Matrix* w[] = {q[static_cast<std::size_t>(i % 6)].get(), k[j].get(),
                                      k[j + 3].get()};
        return ops::linear_group(backend_, w, in);
      };
      const auto prepare = [&](std::span<const Tensor> in) {
        const Shape kv_shape{m, 16, 256};
        ops::attention_inputs(backend_, {.q = in[0].reshape({m, 32, 256}),
                                         .k = in[1].reshape(kv_shape),
                                         .v = in[2].reshape(kv_shape),
                                         .q_norm = head_norm,
                                         .k_norm = head_norm,
                                         .eps = 1e-6f,
                                         .positions = positions,
                                         .inverse_frequencies = frequencies,
                                         .geometry = geometry,
                                         .rows = rows,
                                         .window = 1024});
      };
      const auto attend = [&](const Tensor& in) {
        return ops::attention(backend_, in.reshape({m, 32, 256}), geometry, rows, 1024, 1.0f);
      };
      const auto down_of = [&](int i, const Tensor& in) {
        return ops::linear(backend_, *down[static_cast<std::size_t>(i % 6)], in);
      };
      const auto o_of = [&](int i, const Tensor& in) {
        return ops::linear(backend_, *o[static_cast<std::size_t>(i % 6)], in.reshape({m, 8192}));
      };
      time_op(
          "norm, gate + up", m, [&](int i) { gate_up(i, norm()); }, 127);
      time_op(
          "norm, q + k + v", m, [&](int i) { qkv(i, norm()); }, 127);
      time_op(
          "gate + up, down", m, [&](int i) { down_of(i, gate_up(i, x)[0]); }, 127);
      time_op(
          "gate + up, gelu, down", m,
          [&](int i) {
            const auto wide_outs = gate_up(i, x);
            down_of(i, ops::gelu_mul(backend_, wide_outs[0], wide_outs[1]));
          },
          127);
      time_op(
          "gated, down", m,
          [&](int i) {
            down_of(i, ops::linear_gated(backend_, *gated[static_cast<std::size_t>(i % 3)], x));
          },
          127);
      time_op(
          "q + k + v, o", m, [&](int i) { o_of(i, qkv(i, x)[0]); }, 127);
      time_op(
          "q + k + v, inputs", m, [&](int i) { prepare(qkv(i, x)); }, 127);
      time_op(
          "q + k + v, inputs, attention", m,
          [&](int i) {
            const auto outs = qkv(i, x);
            prepare(outs);
            attend(outs[0]);
          },
          127);
      time_op(
          "q + k + v, inputs, attention, o", m,
          [&](int i) {
            const auto outs = qkv(i, x);
            prepare(outs);
            o_of(i, attend(outs[0]));
          },
          127);
      time_op(
          "attention, o", m, [&](int i) { o_of(i, attend(heads)); }, 127);
    }
  }

  Backend& backend_;
  backend::cuda::CudaDevice& device_;
  FlagshipOptions options_;
  Flagship flagship_;
  std::unique_ptr<models::Workspace> workspace_;
  Tensor noise_, noise_bytes_;
};

}  // namespace

int bench_flagship(Backend& backend, const FlagshipOptions& options) {
  std::printf("Gemma 4 31B, %d layers, made-up weights\n", options.layers);
  Bench(backend, options).run();
  return 0;
}

}  // namespace flotilla::cuda_check
