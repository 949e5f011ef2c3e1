// EngineCore: from what a step gives to the next token of each row.
#include <algorithm>
#include <exception>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/secure_zero.h"
#include "flotilla/engine/engine_core.h"

namespace flotilla::engine {

void EngineCore::let_choose(std::vector<ScheduledRow>& rows) const {
  if (!runner_->can_choose()) return;
  for (ScheduledRow& row : rows) {
    const Generation& generation = generations_.at(row.sequence->id);
    const bool has_logprobs = generation.job->job.top_logprobs >= 0;
    if (!row.wants_logits || has_logprobs) continue;
    row.chooses =
        generation.sampler.takes_largest() && !generation.constraint && banned(generation).empty();
    row.stays = !row.chooses && generation.sampler.num_deciding() > 0;
  }
}

std::span<const TokenId> EngineCore::banned(const Generation& generation) {
  // What a constraint says of end tokens wins over min_tokens.
  if (generation.constraint) return {};
  const bool too_early = generation.output->num_tokens() < generation.job->job.min_tokens;
  return too_early ? std::span<const TokenId>(generation.stop_ids) : std::span<const TokenId>();
}

void EngineCore::take_mask(Answer& answer) {
  grammar::ConstrainedOutput* constraint = answer.generation->constraint.get();
  if (constraint == nullptr) return;
  // Whatever goes wrong with one row ends that request alone.
  try {
    answer.awaits_mask = !constraint->take();
    if (!answer.awaits_mask && !constraint->status().ok()) {
      answer.error = constraint->status().error();
    }
  } catch (const std::exception& error) {
    answer.error = Error{ErrorCode::kInternal, error.what()};
  }
}

std::vector<EngineCore::Answer> EngineCore::collect_answers(const std::vector<ScheduledRow>& rows,
                                                            std::span<const float> logits) {
  const std::span<const TokenId> chosen = runner_->chosen();
  std::vector<Answer> answers;
  std::vector<std::size_t> kept;  // places in `answers`
  std::size_t next = 0;
  std::size_t next_chosen = 0;
  for (const ScheduledRow& row : rows) {
    if (!row.wants_logits) continue;
    Answer answer{.sequence = row.sequence, .generation = &generations_.at(row.sequence->id)};
    if (row.chooses) {
      FLOTILLA_CHECK(next_chosen < chosen.size(), "the model chose fewer tokens than were wanted");
      answer.chosen = chosen[next_chosen++];
    } else if (row.stays) {
      kept.push_back(answers.size());
    } else {
      FLOTILLA_CHECK(logits.size() >= (next + 1) * options_.vocab_size,
                     "the model returned fewer logits than were asked for");
      answer.logits = logits.subspan(next++ * options_.vocab_size, options_.vocab_size);
      take_mask(answer);
    }
    answers.push_back(std::move(answer));
  }
  FLOTILLA_CHECK(logits.size() == next * options_.vocab_size,
                 "the model returned logits of another size than was asked for");
  std::vector<Answer*> asking;
  for (const std::size_t i : kept) asking.push_back(&answers[i]);
  if (!asking.empty()) ask_for_kept(asking);
  return answers;
}

void EngineCore::ask_for_kept(std::span<Answer*> answers) {
  // Masks are made while the model computes: the later one looks, the more are there.
  if (std::any_of(answers.begin(), answers.end(),
                  [](const Answer* a) { return a->generation->constraint != nullptr; })) {
    runner_->wait();
  }
  std::vector<std::vector<backend::LogitEdit>> edits(answers.size());
  std::vector<backend::ShortlistRow> wanted;
  std::vector<std::int32_t> whole;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    Answer& answer = *answers[i];
    const Generation& generation = *answer.generation;
    const auto place = static_cast<std::int32_t>(i);
    take_mask(answer);
    if (answer.error) continue;
    if (answer.awaits_mask) {
      whole.push_back(place);
      continue;
    }
    edits[i] = generation.sampler.edits(banned(generation));
    backend::ShortlistRow row{
        .row = place, .count = generation.sampler.num_deciding(), .edits = edits[i]};
    if (generation.constraint) row.allowed = generation.constraint->mask();
    wanted.push_back(row);
  }
  if (!wanted.empty()) {
    std::vector<backend::Shortlist> found = runner_->shortlist(wanted);
    FLOTILLA_CHECK(found.size() == wanted.size(), "a shortlist for each row that asks for one");
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      answers[static_cast<std::size_t>(wanted[i].row)]->shortlist = std::move(found[i]);
    }
  }
  if (whole.empty()) return;
  const std::span<const float> logits = runner_->read_logits(whole);
  FLOTILLA_CHECK(logits.size() == whole.size() * options_.vocab_size,
                 "the model kept logits of another size than was asked for");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    answers[static_cast<std::size_t>(whole[i])]->logits =
        logits.subspan(i * options_.vocab_size, options_.vocab_size);
  }
}

SamplingTask EngineCore::make_task(const Answer& answer) const {
  const Generation& generation = *answer.generation;
  SamplingTask task{.sampler = &generation.sampler,
                    .logits = answer.logits,
                    .shortlist = answer.shortlist ? &*answer.shortlist : nullptr,
                    .banned = banned(generation)};
  if (generation.constraint) task.allowed = generation.constraint->mask();
  if (!answer.shortlist) task.top_logprobs = generation.job->job.top_logprobs;
  return task;
}

void EngineCore::take_answers(std::span<Answer> answers) {
  std::vector<SamplingTask> tasks;
  tasks.reserve(answers.size());
  std::vector<SamplingTask*> task_of(answers.size(), nullptr);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    if (answer.chosen || answer.error || answer.awaits_mask) continue;
    tasks.push_back(make_task(answer));
    task_of[i] = &tasks.back();
  }
  row_sampler_.run(tasks);
  std::vector<RequestId> emitting;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    Generation& generation = *answers[i].generation;
    emitting.push_back(answers[i].sequence->id);
    try {
      take_answer(answers[i], task_of[i]);
    } catch (const std::exception& error) {
      generation.output->finish(FinishReason::kError, Error{ErrorCode::kInternal, error.what()});
    }
  }
  for (Answer& answer : answers) {
    if (answer.shortlist) secure_clear(answer.shortlist->first);
  }
  for (const RequestId id : emitting) emit(id, generations_.at(id));
}

void EngineCore::take_answer(Answer& answer, SamplingTask* task) {
  Sequence& sequence = *answer.sequence;
  Generation& generation = *answer.generation;
  if (answer.error) {
    generation.output->finish(FinishReason::kError, *answer.error);
  } else if (answer.awaits_mask) {
    generation.logits.assign(answer.logits.begin(), answer.logits.end());
    sequence.awaits_mask = true;
    request_mask_(generation.constraint);
  } else if (answer.chosen) {
    if (*answer.chosen >= 0) {
      continue_with(sequence, generation, *answer.chosen, std::nullopt);
    } else {
      generation.output->finish(
          FinishReason::kError,
          Error{ErrorCode::kModelFault, "NaN or an infinite value in the logits"});
    }
  } else if (!task->token.ok()) {
    generation.output->finish(FinishReason::kError, task->token.error());
  } else {
    std::optional<TokenLogprob> logprob;
    if (task->logprobs) logprob = make_logprob(*task->token, *task->logprobs);
    continue_with(sequence, generation, *task->token, std::move(logprob));
  }
}

void EngineCore::continue_with(Sequence& sequence, Generation& generation, TokenId id,
                               std::optional<TokenLogprob> logprob) {
  scheduler_.verify(sequence);
  sequence.tokens.push_back(id);
  ++completion_tokens_total_;
  take_token(generation, id, std::move(logprob));
  want_mask(generation);
}

void EngineCore::want_mask(Generation& generation) {
  if (!generation.constraint || generation.output->finished()) return;
  const std::int64_t num_tokens = generation.output->num_tokens();
  const bool wants_more =
      num_tokens < generation.job->job.min_tokens && !generation.stop_ids.empty();
  generation.constraint->want(generation.max_tokens - num_tokens, wants_more);
  if (request_mask_) {
    request_mask_(generation.constraint);
  } else {
    generation.constraint->compute();
  }
}

void EngineCore::sample_awaited() {
  std::vector<Answer> answers;
  std::vector<std::vector<float>> logits;
  for (auto& [id, generation] : generations_) {
    if (generation.logits.empty()) continue;
    Sequence& sequence = *generation.sequence;
    if (sequence.awaits_mask && !generation.constraint->is_done()) continue;
    std::vector<float> mine = std::exchange(generation.logits, {});
    if (!sequence.awaits_mask) {  // preempted: they will be computed again
      secure_clear(mine);
      continue;
    }
    sequence.awaits_mask = false;
    Answer answer{.sequence = &sequence, .generation = &generation, .logits = mine};
    take_mask(answer);
    answers.push_back(std::move(answer));
    logits.push_back(std::move(mine));
  }
  if (answers.empty()) return;
  take_answers(answers);
  for (std::vector<float>& row : logits) secure_clear(row);
  collect_finished();
}

TokenLogprob EngineCore::make_logprob(TokenId id, const sampling::RowLogprobs& row) const {
  TokenLogprob out{.id = id, .logprob = row.chosen, .bytes = outputs_->token_bytes(id)};
  for (const auto& [top_id, logprob] : row.top) {
    out.top.push_back({.id = top_id, .logprob = logprob, .bytes = outputs_->token_bytes(top_id)});
  }
  return out;
}

}  // namespace flotilla::engine
