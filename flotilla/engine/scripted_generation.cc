#include "flotilla/engine/scripted_generation.h"

#include <algorithm>
#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/chat/plain_parser.h"
#include "flotilla/engine/scripted_prompt.h"
#include "flotilla/log/log.h"

namespace flotilla::engine {
namespace {

// Takes complete characters from the front of `bytes`; bytes that can no longer become a character
// turn into U+FFFD, one for each.
std::string take_characters(std::string& bytes, bool at_end) {
  std::string out;
  std::size_t begin = 0;
  const std::size_t held = at_end ? 0 : incomplete_utf8_suffix(bytes);
  const std::size_t end = bytes.size() - held;
  while (begin < end) {
    std::size_t size = 1;
    while (size <= 4 && begin + size <= end &&
           !is_valid_utf8(std::string_view(bytes).substr(begin, size))) {
      ++size;
    }
    if (size > 4 || begin + size > end) {
      out += "\xEF\xBF\xBD";
      ++begin;
    } else {
      out.append(bytes, begin, size);
      begin += size;
    }
  }
  bytes.erase(0, end);
  return out;
}

std::int64_t limit_of(const PreparedJob& job, const Script& script) {
  const std::int64_t room =
      script.context_length - static_cast<std::int64_t>(job.prompt_ids.size());
  return job.job.max_tokens > 0 ? std::min(room, job.job.max_tokens) : room;
}

}  // namespace

// The script brings the text along; only characters cut by the script's pieces are joined here.
class ScriptedGeneration::Decoder final : public TokenDecoder {
 public:
  void set_next(std::string bytes, bool special) {
    next_ = std::move(bytes);
    special_ = special;
  }
  TokenText push(TokenId) override {
    TokenText out;
    if (special_) {
      out.text = take_characters(held_, true);
      out.special = std::move(next_);
    } else {
      held_ += next_;
      out.text = take_characters(held_, false);
    }
    next_.clear();
    return out;
  }
  std::string finish() override { return take_characters(held_, true); }

 private:
  std::string next_;
  bool special_ = false;
  std::string held_;
};

ScriptedGeneration::ScriptedGeneration(RequestId id, std::shared_ptr<const PreparedJob> job,
                                       EventSink sink, const Script& script, const ScriptRule& rule)
    : id_(id),
      job_(std::move(job)),
      sink_(std::move(sink)),
      rule_(rule),
      max_tokens_(limit_of(*job_, script)),
      decoder_(new Decoder),
      pipeline_(job_->job, static_cast<std::int64_t>(job_->prompt_ids.size()),
                job_->job.is_completion
                    ? chat::make_plain_parser()
                    : chat::make_output_parser(script.syntax, rule.prompt_suffix),
                std::unique_ptr<TokenDecoder>(decoder_)) {}

void ScriptedGeneration::start(Instant now) {
  started_ = true;
  replay();
  if (pipeline_.has_event()) emit();
  if (!finished()) schedule_next(now);
}

std::optional<ScriptedGeneration::Instant> ScriptedGeneration::due() const {
  if (!started_ || paused_ || hanging_ || finished()) return std::nullopt;
  return due_;
}

const ScriptStep* ScriptedGeneration::next_step() {
  if (position_ >= rule_.steps.size() && rule_.loop) position_ = 0;
  return position_ < rule_.steps.size() ? &rule_.steps[position_] : nullptr;
}

void ScriptedGeneration::schedule_next(Instant from) {
  const ScriptStep* step = next_step();
  due_ = step == nullptr ? from : from + step->delay;
}

void ScriptedGeneration::step(Instant now) {
  const ScriptStep* step = next_step();
  if (step == nullptr) {
    finish(rule_.finish);
    return;
  }
  ++position_;
  switch (step->kind) {
    case ScriptStep::Kind::kToken:
      generate(*step, step->bytes);
      break;
    case ScriptStep::Kind::kEcho:
      generate(*step, echo_text(*step));
      break;
    case ScriptStep::Kind::kEnd: {
      if (job_->job.ignore_eos || pipeline_.num_tokens() < job_->job.min_tokens) break;
      const TokenId id = step->id.value_or(scripted_token_id(step->bytes, true));
      pipeline_.push_end(id, logprob_of(*step, id, step->bytes));
      finish(FinishReason::kStop);
      return;
    }
    case ScriptStep::Kind::kWait:
      break;
    case ScriptStep::Kind::kHang:
      hanging_ = true;
      break;
    case ScriptStep::Kind::kFail:
      finish(FinishReason::kError, step->error);
      return;
  }
  if (finished()) return;
  // From the due time, not from now: delays do not add up. A late timer does not cause a burst.
  schedule_next(std::max(due_, now - std::chrono::milliseconds(20)));
  if (pipeline_.has_event()) emit();
}

void ScriptedGeneration::generate(const ScriptStep& step, std::string bytes) {
  const ChatJob& job = job_->job;
  const TokenId id = step.id.value_or(scripted_token_id(bytes, step.special));
  TokenLogprob logprob = logprob_of(step, id, bytes);
  const bool is_stop = std::find(job.stop_token_ids.begin(), job.stop_token_ids.end(), id) !=
                       job.stop_token_ids.end();
  if (is_stop && pipeline_.num_tokens() + 1 > job.min_tokens) {
    pipeline_.push_end(id, std::move(logprob));
    finish(FinishReason::kStop);
    return;
  }
  decoder_->set_next(std::move(bytes), step.special);
  if (pipeline_.push(id, std::move(logprob))) {
    finish(FinishReason::kStop);
  } else if (pipeline_.num_tokens() >= max_tokens_) {
    finish(FinishReason::kLength);
  }
}

// Walks the script up to the end of resume_ids without waiting; what lies between tokens there has
// happened elsewhere.
void ScriptedGeneration::replay() {
  std::size_t done = 0;
  const auto& ids = job_->job.resume_ids;
  while (done < ids.size() && !finished()) {
    const ScriptStep* step = next_step();
    if (step == nullptr) break;
    ++position_;
    const bool token =
        step->kind == ScriptStep::Kind::kToken || step->kind == ScriptStep::Kind::kEcho;
    if (!token) continue;
    std::string bytes = step->kind == ScriptStep::Kind::kEcho ? echo_text(*step) : step->bytes;
    if (step->id.value_or(scripted_token_id(bytes, step->special)) != ids[done]) break;
    generate(*step, std::move(bytes));
    ++done;
  }
  if (done < ids.size() && !finished()) {
    finish(FinishReason::kError,
           Error{ErrorCode::kInvalidArgument,
                 "resume_ids[" + std::to_string(done) + "] is not what the script generates"});
  }
}

void ScriptedGeneration::emit() {
  try {
    // A false with the last event means nothing: no more will come.
    if (!sink_(pipeline_.take_event(id_)) && !finished()) paused_ = true;
  } catch (const std::exception& error) {
    log::error("event_sink_failed", {{"request", id_.value}, {"what", error.what()}});
    sink_ = [](TokenEvent) { return true; };
    if (!finished()) pipeline_.finish(FinishReason::kCancelled);
  }
}

void ScriptedGeneration::finish(FinishReason reason, std::optional<Error> error) {
  if (finished()) return;
  pipeline_.finish(reason, std::move(error));
  emit();
}

void ScriptedGeneration::resume(Instant now) {
  if (!paused_) return;
  paused_ = false;
  due_ = std::max(due_, now);
}

std::string ScriptedGeneration::echo_text(const ScriptStep& step) const {
  switch (step.echo) {
    case ScriptStep::Echo::kSeed:
      return std::to_string(job_->job.sampling.seed);
    case ScriptStep::Echo::kChoice:
      return std::to_string(job_->job.sampling.choice);
    case ScriptStep::Echo::kUser:
      return last_user_text(job_->job);
    case ScriptStep::Echo::kPromptTokens:
      return std::to_string(job_->prompt_ids.size());
  }
  return {};
}

TokenLogprob ScriptedGeneration::logprob_of(const ScriptStep& step, TokenId id,
                                            const std::string& bytes) const {
  TokenLogprob out{.id = id, .logprob = step.logprob, .bytes = bytes};
  for (int i = 0; i < job_->job.top_logprobs; ++i) {
    if (i == 0) {
      out.top.push_back({.id = id, .logprob = step.logprob, .bytes = bytes});
    } else {
      std::string other = "alternative" + std::to_string(i);
      const TokenId other_id = scripted_token_id(other, false);
      const double logprob = std::max(-9999.0, step.logprob - i);
      out.top.push_back({.id = other_id, .logprob = logprob, .bytes = std::move(other)});
    }
  }
  return out;
}

}  // namespace flotilla::engine
