#include "play.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <stdexcept>

#include "flotilla/base/clock.h"
#include "flotilla/engine/device_pages.h"
#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/model_runner.h"

namespace flotilla::schedules {
namespace {

using engine::EngineCore;

// The state of one play that runner, outputs and sinks share.
struct Stage {
  const Schedule& schedule;
  std::vector<Trace>& traces;
  Coverage& coverage;
  std::vector<std::int64_t> num_prompt;
  std::vector<std::int64_t> num_events;
  std::map<RequestId, std::int64_t> paused = {};  // until which step
  std::int64_t step = 0;

  static RequestId id_of(std::size_t index) { return RequestId{index + 1}; }
  static std::size_t index_of(RequestId id) { return static_cast<std::size_t>(id.value - 1); }
};

// Notes the hash of every row of logits, and puts faults in.
class RecordingRunner final : public engine::StepRunner {
 public:
  RecordingRunner(Stage& stage, const Machine& machine)
      : stage_(stage), inner_(*machine.model, *machine.backend) {}

  std::span<const float> run(std::span<const engine::ScheduledRow> rows) override {
    Coverage& coverage = stage_.coverage;
    coverage.rows += rows.size();
    for (const auto& row : rows) coverage.tokens += static_cast<std::uint64_t>(row.count);
    if (stage_.step == stage_.schedule.failing_step) {
      ++coverage.faults;
      for (const auto& row : rows) {
        stage_.traces[Stage::index_of(row.sequence->id)].in_failed_step = true;
      }
      throw std::runtime_error("this step was to fail");
    }
    std::span<const float> logits = inner_.run(rows);
    const auto wanted = static_cast<std::size_t>(
        std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.wants_logits; }));
    if (wanted == 0) return logits;
    const std::size_t vocab = logits.size() / wanted;
    bool poisoned = false;
    std::size_t at = 0;
    for (const auto& row : rows) {
      if (!row.wants_logits) continue;
      const std::size_t i = Stage::index_of(row.sequence->id);
      const Arrival& arrival = stage_.schedule.arrivals[i];
      const std::int64_t index = row.begin + row.count - stage_.num_prompt[i];
      stage_.traces[i].logits.push_back({index, hash_bits(logits.subspan(at * vocab, vocab))});
      ++coverage.positions;
      if (arrival.fault == Fault::kNan && arrival.fault_at == index) {
        if (!poisoned) copy_.assign(logits.begin(), logits.end());
        poisoned = true;
        copy_[at * vocab + vocab / 2] = std::numeric_limits<float>::quiet_NaN();
        ++coverage.faults;
      }
      ++at;
    }
    return poisoned ? std::span<const float>(copy_) : logits;
  }

 private:
  Stage& stage_;
  engine::ModelRunner inner_;
  std::vector<float> copy_;
};

// The text of token n is "n "; works for folders without a tokenizer. Throws where a fault says so.
class IdDecoder final : public engine::TokenDecoder {
 public:
  IdDecoder(std::int64_t throw_at, Coverage& coverage) : throw_at_(throw_at), coverage_(coverage) {}
  engine::TokenText push(TokenId id) override {
    if (num_tokens_++ == throw_at_) {
      ++coverage_.faults;
      throw std::runtime_error("this token was to fail");
    }
    return {.text = std::to_string(id) + " ", .special = {}};
  }
  std::string finish() override { return {}; }

 private:
  const std::int64_t throw_at_;
  std::int64_t num_tokens_ = 0;
  Coverage& coverage_;
};

class IdOutputs final : public engine::OutputFactory {
 public:
  explicit IdOutputs(Stage& stage) : stage_(stage) {}
  std::unique_ptr<engine::OutputPipeline> make_output(
      const engine::PreparedJob& job) const override {
    const Arrival& arrival = stage_.schedule.arrivals[accepting];
    const std::int64_t throw_at = arrival.fault == Fault::kOutputThrow ? arrival.fault_at : -1;
    return std::make_unique<engine::OutputPipeline>(
        job.job, static_cast<std::int64_t>(job.prompt_ids.size()),
        chat::make_output_parser(chat::OutputSyntax::kPlain, ""),
        std::make_unique<IdDecoder>(throw_at, stage_.coverage));
  }
  std::string token_bytes(TokenId id) const override { return std::to_string(id) + " "; }

  std::size_t accepting = 0;  // the arrival that the engine is given at the moment

 private:
  Stage& stage_;
};

void note(Trace& trace, const engine::TokenEvent& event) {
  if (event.first_index != trace.ids.size()) trace.index_gap = true;
  trace.ids.insert(trace.ids.end(), event.ids.begin(), event.ids.end());
  for (const chat::OutputDelta& delta : event.deltas) trace.text += delta.text;
  for (const engine::TokenLogprob& logprob : event.logprobs) {
    std::uint64_t hash =
        std::bit_cast<std::uint64_t>(logprob.logprob) ^ static_cast<std::uint64_t>(logprob.id);
    for (const engine::TokenLogprob& top : logprob.top) {
      hash = (hash ^ std::bit_cast<std::uint64_t>(top.logprob)) * 0x9e3779b97f4a7c15u +
             static_cast<std::uint64_t>(top.id);
    }
    trace.logprobs.push_back(hash);
  }
  if (event.finish) {
    trace.finish = event.finish;
    ++trace.num_finishes;
  }
}

engine::EventSink make_sink(Stage& stage, std::size_t index) {
  return [&stage, index](engine::TokenEvent event) {
    const Arrival& arrival = stage.schedule.arrivals[index];
    const std::int64_t number = stage.num_events[index]++;
    if (arrival.fault == Fault::kSinkThrow && number == arrival.fault_at) {
      ++stage.coverage.faults;
      throw std::runtime_error("this sink was to fail");
    }
    note(stage.traces[index], event);
    const bool full = arrival.pause_every > 0 && (number + 1) % arrival.pause_every == 0 &&
                      !event.finish.has_value();
    if (full) {
      ++stage.coverage.pauses;
      stage.paused[Stage::id_of(index)] = stage.step + arrival.pause_steps;
    }
    return !full;
  };
}

engine::EngineOptions engine_options(const Schedule& schedule, const models::CausalLM& model,
                                     const Clock& clock) {
  engine::EngineOptions options;
  options.scheduler = {.max_batch_tokens = schedule.max_batch_tokens,
                       .prefill_chunk = schedule.prefill_chunk,
                       .max_sequences = schedule.max_sequences,
                       .max_bypass = schedule.max_bypass,
                       .force_preemption_every = schedule.force_preemption_every,
                       .force_eviction_every = schedule.evict_every};
  std::int64_t longest = 1;
  for (const Arrival& arrival : schedule.arrivals) {
    longest = std::max(longest, arrival.request.num_prompt() + arrival.request.max_tokens + 1);
  }
  const std::size_t needed = model.state_layout().peak_bytes(longest, schedule.prefill_chunk);
  options.kv_bytes =
      needed + needed * static_cast<std::size_t>(schedule.spare_memory_percent) / 100;
  options.context_length = model.info().context_length;
  options.vocab_size = static_cast<std::size_t>(model.info().vocab_size);
  options.eos_ids = model.info().eos_ids;
  options.model = "schedule";
  options.clock = &clock;
  options.prefix_cache = {
      .enabled = schedule.prefix_cache_percent > 0,
      .max_bytes = options.kv_bytes * static_cast<std::size_t>(schedule.prefix_cache_percent) / 100,
      .max_checkpoint_bytes = 0,
      .checkpoint_interval = schedule.checkpoint_interval};
  return options;
}

// More than any schedule takes that makes progress.
std::int64_t step_limit(const Schedule& schedule) {
  std::int64_t tokens = 0, pauses = 0;
  for (const Arrival& a : schedule.arrivals) {
    tokens += a.request.num_prompt() + a.request.max_tokens;
    pauses += a.step + a.cancel_step + a.pause_steps * a.request.max_tokens;
  }
  return 2000 + pauses + 40 * tokens;
}

}  // namespace

void Coverage::add(const Coverage& other) {
  requests += other.requests;
  steps += other.steps;
  rows += other.rows;
  tokens += other.tokens;
  positions += other.positions;
  preemptions += other.preemptions;
  pauses += other.pauses;
  cancels += other.cancels;
  resumes += other.resumes;
  faults += other.faults;
  cached_tokens += other.cached_tokens;
  evictions += other.evictions;
}

Played play(const Schedule& schedule, const Machine& machine,
            std::span<const std::shared_ptr<const Trace>> answers) {
  const std::size_t count = schedule.arrivals.size();
  Played played{.traces = std::vector<Trace>(count), .problem = {}};
  Stage stage{.schedule = schedule,
              .traces = played.traces,
              .coverage = played.coverage,
              .num_prompt = std::vector<std::int64_t>(count),
              .num_events = std::vector<std::int64_t>(count)};
  auto outputs = std::make_shared<IdOutputs>(stage);
  const FakeClock clock;  // stands still: nothing may depend on time
  engine::EngineOptions options = engine_options(schedule, *machine.model, clock);
  if (backend::PageDevice* device = machine.backend->page_device()) {
    auto pages =
        engine::DevicePages::make(*device, machine.model->state_layout(), options.kv_bytes);
    FLOTILLA_CHECK(pages.ok(), "no room for the pages of a schedule on the device");
    options.pages = std::move(pages).value();
  }
  EngineCore core(options, machine.model->state_layout(),
                  std::make_unique<RecordingRunner>(stage, machine), outputs);

  const auto arrive = [&](std::size_t i) {
    const Arrival& arrival = schedule.arrivals[i];
    auto job = make_job(arrival.request, machine.model->info().vocab_size);
    job->job.tenant = arrival.tenant;
    if (arrival.resume_at >= 0 && answers[i] != nullptr) {
      const auto& ids = answers[i]->ids;
      const auto length =
          std::min<std::size_t>(static_cast<std::size_t>(arrival.resume_at), ids.size());
      job->job.resume_ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length));
      ++stage.coverage.resumes;
    }
    stage.num_prompt[i] = static_cast<std::int64_t>(job->prompt_ids.size());
    outputs->accepting = i;
    core.accept(Stage::id_of(i), job, make_sink(stage, i));
    ++stage.coverage.requests;
  };

  std::int64_t last_event = 0;
  for (const Arrival& a : schedule.arrivals) {
    last_event = std::max({last_event, a.step, a.cancel_step});
  }
  const std::int64_t limit = step_limit(schedule);
  for (;; ++stage.step) {
    if (stage.step > limit) {
      played.problem = "it does not end within " + std::to_string(limit) + " steps";
      break;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (schedule.arrivals[i].step == stage.step) arrive(i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (schedule.arrivals[i].cancel_step != stage.step) continue;
      if (played.traces[i].num_finishes == 0) ++stage.coverage.cancels;
      core.cancel(Stage::id_of(i));
    }
    for (auto it = stage.paused.begin(); it != stage.paused.end();) {
      if (it->second > stage.step) {
        ++it;
        continue;
      }
      const RequestId id = it->first;
      it = stage.paused.erase(it);
      core.resume_output(id);
    }
    const auto outcome = core.step();
    ++stage.coverage.steps;
    core.check_integrity();
    core.take_finished();
    const bool idle = outcome == EngineCore::StepOutcome::kIdle;
    if (idle && stage.step >= last_event && stage.paused.empty()) break;
  }
  const engine::EngineStats stats = core.stats();
  stage.coverage.preemptions = core.num_preemptions();
  stage.coverage.cached_tokens = stats.prefix_cache.hit_tokens;
  stage.coverage.evictions = stats.prefix_cache.evictions;
  if (played.problem.empty() && stats.kv_bytes_used != 0) {
    played.problem = std::to_string(stats.kv_bytes_used) + " bytes of pages are left";
  }
  core.end_all({ErrorCode::kCancelled, "the schedule is over"});
  return played;
}

}  // namespace flotilla::schedules
