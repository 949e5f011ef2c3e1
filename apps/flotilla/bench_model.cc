#include "apps/flotilla/bench_model.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "apps/flotilla/device.h"
#include "flotilla/backend/backend.h"
#include "flotilla/backend/cpu/read_bandwidth.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/device_error.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/engine/device_pages.h"
#include "flotilla/engine/model_runner.h"
#include "flotilla/models/causal_lm.h"
#include "flotilla/sampling/sampler.h"
#include "flotilla/state/page_pool.h"
#include "flotilla/state/sequence_state.h"

namespace flotilla::apps {
namespace {

constexpr std::int64_t kFillPiece = 256;
constexpr std::int64_t kSpare = 96;  // positions left for decode steps after the deepest start

using Time = std::chrono::steady_clock;
double seconds_since(Time::time_point begin) {
  return std::chrono::duration<double>(Time::now() - begin).count();
}

// One model with some sequences at a given depth, run as the engine runs them.
class Stepper {
 public:
  Stepper(const models::CausalLM& model, backend::Backend& backend,
          std::shared_ptr<state::PageMemory> memory, std::size_t bytes)
      : model_(model), runner_(model, backend), pool_(bytes, std::move(memory)) {}

  // `rows` sequences with `depth` tokens each.
  Status begin(std::int64_t rows, std::int64_t depth) {
    sequences_.clear();
    samplers_.clear();
    for (std::int64_t i = 0; i < rows; ++i) {
      sequences_.push_back(std::make_unique<engine::Sequence>(
          engine::Sequence{.id = RequestId{++last_id_},
                           .tokens = std::vector<TokenId>(static_cast<std::size_t>(depth) + 1, 5),
                           .state = state::SequenceState(model_.state_layout(), pool_)}));
      samplers_.emplace_back(sampling::SamplingParams{.temperature = 0},
                             std::span<const TokenId>());
      // In pieces, as a prompt would come: window layers drop pages on the way.
      state::SequenceState& state = sequences_.back()->state;
      for (std::int64_t at = 0; at < depth;) {
        const std::int64_t piece = std::min<std::int64_t>(depth - at, kFillPiece);
        FLOTILLA_TRY_STATUS(state.reserve(at + piece));
        state.append(piece);
        at += piece;
      }
    }
    return ok_status();
  }

  Status decode_step() {
    rows_.clear();
    for (const auto& sequence : sequences_) {
      const std::int64_t position = sequence->state.num_positions();
      FLOTILLA_TRY_STATUS(sequence->state.reserve(position + 2));  // as the engine does
      rows_.push_back({.sequence = sequence.get(),
                       .begin = position,
                       .count = 1,
                       .wants_logits = true,
                       .chooses = runner_.can_choose()});
    }
    const std::span<const float> logits = runner_.run(rows_);
    const std::size_t vocab = logits.size() / sequences_.size();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      TokenId token = 0;
      if (runner_.can_choose()) {
        token = runner_.chosen()[i];
      } else {
        FLOTILLA_TRY(token, samplers_[i].sample(logits.subspan(i * vocab, vocab), {}, scratch_));
      }
      samplers_[i].accept(token);
      sequences_[i]->tokens.push_back(token);
      sequences_[i]->state.append(1);
    }
    return ok_status();
  }

  Status prefill(std::int64_t tokens, std::int64_t chunk) {
    engine::Sequence& sequence = *sequences_[0];
    const std::int64_t start = sequence.state.num_positions();
    const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
    sequence.tokens.resize(static_cast<std::size_t>(start));
    for (std::size_t i = 0; i < static_cast<std::size_t>(tokens); ++i) {
      sequence.tokens.push_back(static_cast<TokenId>((i * 37 + 11) % vocab));
    }
    for (std::int64_t at = 0; at < tokens; at += chunk) {
      const std::int64_t count = std::min(chunk, tokens - at);
      const bool last = at + count == tokens;
      FLOTILLA_TRY_STATUS(sequence.state.reserve(start + at + count));
      const engine::ScheduledRow row{.sequence = &sequence,
                                     .begin = start + at,
                                     .count = count,
                                     .wants_logits = last,
                                     .chooses = last && runner_.can_choose()};
      runner_.run(std::span(&row, 1));
      sequence.state.append(count);
    }
    return ok_status();
  }

 private:
  const models::CausalLM& model_;
  engine::ModelRunner runner_;
  state::PagePool pool_;
  std::vector<std::unique_ptr<engine::Sequence>> sequences_;
  std::vector<sampling::Sampler> samplers_;
  std::vector<engine::ScheduledRow> rows_;
  std::uint64_t last_id_ = 0;
  sampling::SamplerScratch scratch_;
};

struct Samples {
  std::vector<double> rate, bandwidth, share;
};

}  // namespace

Figure summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

namespace {

// Room for the deepest cell, and a little.
Result<std::shared_ptr<state::PageMemory>> page_memory(backend::Backend& backend,
                                                       const models::CausalLM& model,
                                                       std::size_t& bytes) {
  backend::PageDevice* device = backend.page_device();
  if (device == nullptr) {
    bytes = std::size_t{1} << 44;
    return std::shared_ptr<state::PageMemory>(std::make_shared<state::HostPageMemory>(bytes));
  }
  constexpr std::size_t kSpareBytes = std::size_t{3} << 30;  // the reading rate takes one of them
  const std::size_t free = device->free_bytes();
  bytes = engine::DevicePages::usable_of(free > kSpareBytes ? free - kSpareBytes : 0,
                                         model.state_layout());
  FLOTILLA_TRY(auto pages, engine::DevicePages::make(*device, model.state_layout(), bytes));
  return std::shared_ptr<state::PageMemory>(std::move(pages));
}

double read_rate(backend::Backend& backend, int threads) {
  constexpr std::size_t kDeviceBytes = std::size_t{1} << 30;
  if (auto* card = backend::cuda::cuda_device(backend))
    return card->read_bandwidth(kDeviceBytes, 3);
  return backend::measure_read_bandwidth(threads);
}

Result<BenchResult> bench_on(BenchOptions options, const Device& device) {
  FLOTILLA_TRY(const auto checkpoint, checkpoint::Checkpoint::open(options.folder));
  FLOTILLA_TRY(auto backend, device.cuda
                                 ? backend::make_cuda_backend(*device.cuda)
                                 : backend::make_cpu_backend({.num_threads = options.threads,
                                                              .pin_threads = options.pin_threads}));
  if (options.prefill_chunk == 0) options.prefill_chunk = device.cuda ? 2048 : 256;
  FLOTILLA_TRY(auto model, models::load_model(checkpoint, *backend));
  const int threads = backend->capabilities().num_threads;
  BenchResult result{.device = backend->capabilities().device,
                     .num_parameters = model->info().num_parameters,
                     .weight_bytes = model->info().weight_bytes};
  if (options.depths.empty()) {
    const std::int64_t room = model->info().context_length - options.prefill_tokens - kSpare;
    options.depths = {std::min<std::int64_t>(128, room), std::min<std::int64_t>(4000, room)};
  }
  for (const std::int64_t depth : options.depths) {
    if (depth < 0 || depth + options.prefill_tokens > model->info().context_length) {
      return Error{ErrorCode::kInvalidArgument, "depth " + std::to_string(depth) + " and " +
                                                    std::to_string(options.prefill_tokens) +
                                                    " prefill tokens exceed the context of " +
                                                    std::to_string(model->info().context_length)};
    }
    for (const std::int64_t rows : options.rows)
      result.decode.push_back({.rows = rows, .depth = depth});
    result.prefill.push_back({.tokens = options.prefill_tokens, .depth = depth});
  }

  std::size_t page_bytes = 0;
  FLOTILLA_TRY(auto memory, page_memory(*backend, *model, page_bytes));
  Stepper stepper(*model, *backend, std::move(memory), page_bytes);
  result.state_room = page_bytes;
  for (DecodeResult& cell : result.decode) {
    cell.state_bytes = static_cast<std::uint64_t>(cell.rows) *
                       model->state_layout().peak_bytes(cell.depth + kSpare, kFillPiece);
    cell.fits = cell.state_bytes <= page_bytes;
  }
  std::vector<double> read_loop;
  std::vector<Samples> decode(result.decode.size());
  std::vector<std::vector<double>> prefill(result.prefill.size());
  for (int round = -1; round < options.rounds; ++round) {  // round -1 warms up
    for (std::size_t i = 0; i < decode.size(); ++i) {
      if (!result.decode[i].fits) continue;
      const double read = read_rate(*backend, threads) / 1e9;
      const auto& what = result.decode[i];
      FLOTILLA_TRY_STATUS(stepper.begin(what.rows, what.depth));
      FLOTILLA_TRY_STATUS(stepper.decode_step());  // touches pages and workspace
      int steps = 0;
      const auto begin = Time::now();
      double elapsed = 0;
      do {
        FLOTILLA_TRY_STATUS(stepper.decode_step());
        ++steps;
        elapsed = seconds_since(begin);
      } while (elapsed < options.seconds_per_sample &&
               what.depth + steps + 2 < model->info().context_length);
      if (round < 0) continue;
      const double step_bytes = static_cast<double>(result.weight_bytes) +
                                static_cast<double>(what.rows) *
                                    static_cast<double>(model->state_layout().bytes(what.depth));
      const double bandwidth = step_bytes * steps / elapsed / 1e9;
      read_loop.push_back(read);
      decode[i].rate.push_back(static_cast<double>(what.rows) * steps / elapsed);
      decode[i].bandwidth.push_back(bandwidth);
      decode[i].share.push_back(bandwidth / read);
    }
    if (round < 0 || options.prefill_tokens == 0) continue;
    for (std::size_t i = 0; i < prefill.size(); ++i) {
      FLOTILLA_TRY_STATUS(stepper.begin(1, result.prefill[i].depth));
      const auto begin = Time::now();
      FLOTILLA_TRY_STATUS(stepper.prefill(options.prefill_tokens, options.prefill_chunk));
      prefill[i].push_back(static_cast<double>(options.prefill_tokens) / seconds_since(begin));
    }
  }
  result.read_loop = summarize(read_loop);
  for (std::size_t i = 0; i < decode.size(); ++i) {
    result.decode[i].tokens_per_second = summarize(decode[i].rate);
    result.decode[i].gigabytes_per_second = summarize(decode[i].bandwidth);
    result.decode[i].share_of_read_loop = summarize(decode[i].share);
  }
  for (std::size_t i = 0; i < prefill.size(); ++i)
    result.prefill[i].tokens_per_second = summarize(prefill[i]);
  return result;
}

}  // namespace

Result<BenchResult> bench_model(BenchOptions options) {
  FLOTILLA_TRY(const Device device, choose_device(options.device));
  try {
    return bench_on(std::move(options), device);
  } catch (const backend::DeviceError& error) {
    return Error{ErrorCode::kUnavailable, error.what()};
  }
}

}  // namespace flotilla::apps
