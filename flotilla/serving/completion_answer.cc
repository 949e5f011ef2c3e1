#include "flotilla/serving/completion_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace flotilla::serving {
namespace {

// Mean log probability of the tokens: what `best_of` compares.
double likelihood(const std::vector<api::TokenLogprob>& logprobs) {
  double sum = 0;
  for (const api::TokenLogprob& entry : logprobs) sum += entry.logprob;
  return logprobs.empty() ? api::kLogprobFloor : sum / static_cast<double>(logprobs.size());
}

}  // namespace

CompletionAnswer::CompletionAnswer(api::ResponseHead head, CompletionPlan plan)
    : head_(std::move(head)),
      plan_(std::move(plan)),
      choices_(plan_.num_prompts * static_cast<std::size_t>(plan_.per_prompt)) {}

std::string_view CompletionAnswer::echo_of(std::size_t index) const {
  if (plan_.echoes.empty()) return {};
  return plan_.echoes[index / static_cast<std::size_t>(plan_.per_prompt)];
}

Status CompletionAnswer::add(ChatEvent& event, std::string& out) {
  const auto index = static_cast<std::size_t>(event.choice);
  FLOTILLA_CHECK(index < choices_.size(), "event of a choice that was not asked for");
  Choice& choice = choices_[index];
  std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.logprobs));
  choice.token_ids.insert(choice.token_ids.end(), event.ids.begin(), event.ids.end());
  std::string text;
  if (!std::exchange(choice.echoed, true)) text = echo_of(index);
  for (const ChatDelta& delta : event.deltas) text += delta.text;
  if (event.finish) {
    choice.finish = api::finish_reason(event.finish->reason == ChatFinish::Reason::kLength, false);
  }
  if (!plan_.stream) {
    choice.text += text;
    return ok_status();
  }
  if (!text.empty()) append_piece(choice, event.choice, text, {}, out);
  if (event.finish) append_piece(choice, event.choice, {}, choice.finish, out);
  return ok_status();
}

void CompletionAnswer::append_piece(Choice& choice, int index, std::string_view text,
                                    std::optional<api::FinishReason> finish, std::string& out) {
  api::append_completion_chunk(out, head_,
                               {.index = index,
                                .text = text,
                                .logprobs = choice.logprobs,
                                .token_ids = choice.token_ids,
                                .text_offset = choice.num_characters,
                                .finish = finish});
  for (const api::TokenLogprob& entry : choice.logprobs)
    choice.num_characters += api::count_characters(entry.bytes);
  choice.logprobs.clear();
  choice.token_ids.clear();
}

// The indexes of the choices that the client gets, in its order.
std::vector<std::size_t> CompletionAnswer::kept() const {
  std::vector<std::size_t> out;
  const auto per_prompt = static_cast<std::size_t>(plan_.per_prompt);
  for (std::size_t first = 0; first < choices_.size(); first += per_prompt) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < per_prompt; ++i) order.push_back(first + i);
    if (plan_.kept_per_prompt < plan_.per_prompt) {
      std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
        return likelihood(choices_[a].logprobs) > likelihood(choices_[b].logprobs);
      });
      order.resize(static_cast<std::size_t>(plan_.kept_per_prompt));
    }
    out.insert(out.end(), order.begin(), order.end());
  }
  return out;
}

void CompletionAnswer::end(const api::Usage& usage, std::string& out) {
  if (plan_.stream) {
    if (head_.include_usage) api::append_completion_usage(out, head_, usage);
    out += api::kDoneFrame;
    return;
  }
  std::vector<api::CompletionPiece> pieces;
  for (const std::size_t index : kept()) {
    const Choice& choice = choices_[index];
    pieces.push_back({.index = static_cast<int>(pieces.size()),
                      .text = choice.text,
                      .logprobs = choice.logprobs,
                      .token_ids = choice.token_ids,
                      .finish = choice.finish});
  }
  out += api::render_completion(head_, pieces, usage);
}

}  // namespace flotilla::serving
