#include "flotilla/provider/chat_job.h"

#include <cmath>
#include <random>
#include <utility>

#include "flotilla/protocol/identity.h"

namespace flotilla::provider {

namespace {

Status check_token(TokenId id, const engine::EngineInfo& info, std::string_view field) {
  if (id >= 0 && (info.vocab_size == 0 || id < info.vocab_size)) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "'" + std::string(field) + "' names token " + std::to_string(id) +
                   ", the vocabulary of '" + info.model + "' has " +
                   std::to_string(info.vocab_size),
               std::string(field)};
}

template <class T>
T choose(const std::optional<T>& asked, const std::optional<T>& of_model, T otherwise) {
  return asked ? *asked : of_model ? *of_model : otherwise;
}

serving::ChatDelta::Channel channel_of(chat::Channel channel) {
  switch (channel) {
    case chat::Channel::kContent:
      return serving::ChatDelta::Channel::kContent;
    case chat::Channel::kReasoning:
      return serving::ChatDelta::Channel::kReasoning;
    case chat::Channel::kToolCall:
      break;
  }
  return serving::ChatDelta::Channel::kToolCall;
}

protocol::TextChannel wire_channel(chat::Channel channel) {
  switch (channel) {
    case chat::Channel::kContent:
      return protocol::TextChannel::kContent;
    case chat::Channel::kReasoning:
      return protocol::TextChannel::kReasoning;
    case chat::Channel::kToolCall:
      break;
  }
  return protocol::TextChannel::kToolCall;
}

grammar::Constraint constraint_of(const api::ChatRequest& request) {
  using grammar::Constraint;
  Constraint out;
  if (const boost::json::object* form = request.output_format.if_object()) {
    const std::string_view kind(form->at("kind").as_string());
    const boost::json::value* value = form->if_contains("value");
    out.param = std::string(std::string_view(form->at("param").as_string()));
    if (kind == "json_object") out.kind = Constraint::Kind::kJsonObject;
    if (kind == "json_schema") {
      out.kind = Constraint::Kind::kJsonSchema;
      out.schema = *value;
    }
    if (kind == "regex" || kind == "grammar") {
      out.kind = kind == "regex" ? Constraint::Kind::kRegex : Constraint::Kind::kGrammar;
      out.text = std::string(std::string_view(value->as_string()));
    }
    if (kind == "choice") {
      out.kind = Constraint::Kind::kChoice;
      for (const boost::json::value& choice : value->as_array()) {
        out.choices.emplace_back(std::string_view(choice.as_string()));
      }
    }
  }
  const bool tools = request.tools.is_array() && !request.tools.get_array().empty();
  if (!tools) return out;
  out.parallel = request.parallel_tool_calls;
  out.strict_tools = request.strict_tools;
  if (request.tool_choice == "required" || request.tool_choice == "function") {
    out.calls = Constraint::Calls::kForced;
    out.function = request.tool_choice_function;
    if (!out.function.empty()) out.parallel = false;
  } else if (!request.strict_tools.empty() || out.kind != Constraint::Kind::kNone) {
    out.calls = Constraint::Calls::kStrict;
  }
  return out;
}

// Works for both vocabularies: their members have the same names.
template <class To>
To convert_logprob(engine::TokenLogprob& from) {
  To out;
  out.id = from.id;
  out.logprob = std::isfinite(from.logprob) ? std::max(from.logprob, -9999.0) : -9999.0;
  out.bytes = std::move(from.bytes);
  for (engine::TokenLogprob& item : from.top) out.top.push_back(convert_logprob<To>(item));
  return out;
}

}  // namespace

Result<engine::ChatJob> to_chat_job(const api::ChatRequest& request, const engine::EngineInfo& info,
                                    int choice, const std::string& tenant) {
  engine::ChatJob job;
  job.messages = request.messages;
  job.is_completion = request.is_completion;
  job.raw_prompt = request.prompt;
  for (const TokenId id : request.prompt_ids) FLOTILLA_TRY_STATUS(check_token(id, info, "prompt"));
  job.prompt_ids = request.prompt_ids;
  job.add_generation_prompt = request.add_generation_prompt;
  job.continue_final_message = request.continue_final_message;
  job.count_only = request.count_only;
  job.tools = request.tools;
  job.template_variables = request.template_variables;
  job.render_time = request.render_time;

  const engine::SamplingDefaults& model = info.sampling_defaults;
  sampling::SamplingParams& s = job.sampling;
  s.temperature = choose(request.temperature, model.temperature, 1.0);
  s.top_p = choose(request.top_p, model.top_p, 1.0);
  s.top_k = std::max(0, choose(request.top_k, model.top_k, 0));
  s.min_p = choose(request.min_p, model.min_p, 0.0);
  s.presence_penalty = request.presence_penalty;
  s.frequency_penalty = request.frequency_penalty;
  s.repetition_penalty = request.repetition_penalty;
  for (const auto& [id, bias] : request.logit_bias)
    FLOTILLA_TRY_STATUS(check_token(id, info, "logit_bias"));
  s.logit_bias = request.logit_bias;
  s.seed = request.sampling_seed;
  s.choice = static_cast<std::uint32_t>(choice);

  job.max_tokens = request.max_tokens.value_or(0);
  job.min_tokens = request.min_tokens;
  job.ignore_eos = request.ignore_eos;
  job.stop = request.stop;
  for (const TokenId id : request.stop_token_ids)
    FLOTILLA_TRY_STATUS(check_token(id, info, "stop_token_ids"));
  job.stop_token_ids = request.stop_token_ids;
  job.include_stop_string = request.include_stop_string;
  job.top_logprobs = request.logprobs ? request.top_logprobs : -1;
  job.wants_token_ids = request.return_token_ids;
  job.constraint = constraint_of(request);
  job.tenant = tenant;
  return job;
}

void fix_at_admission(api::ChatRequest& request, std::int64_t now_unix_seconds) {
  if (request.seed) {
    request.sampling_seed = *request.seed;
  } else {
    std::random_device random;
    request.sampling_seed = (std::uint64_t{random()} << 32) | random();
  }
  request.render_time = now_unix_seconds;
}

std::string CallIds::first_id(const chat::OutputDelta& delta) const {
  if (delta.channel != chat::Channel::kToolCall || delta.call_name.empty()) return {};
  return protocol::tool_call_id(job_, static_cast<std::uint32_t>(delta.call_index));
}

bool has_calls(const engine::TokenEvent& event) {
  for (const chat::OutputDelta& delta : event.deltas) {
    if (delta.channel == chat::Channel::kToolCall) return true;
  }
  return false;
}

serving::ChatFinish to_chat_finish(const engine::Finish& finish, bool any_calls) {
  using Reason = serving::ChatFinish::Reason;
  serving::ChatFinish out;
  switch (finish.reason) {
    case engine::FinishReason::kStop:
      out.reason = any_calls ? Reason::kToolCalls : Reason::kStop;
      break;
    case engine::FinishReason::kLength:
      out.reason = Reason::kLength;
      break;
    case engine::FinishReason::kCancelled:
      out.reason = Reason::kCancelled;
      break;
    case engine::FinishReason::kError:
      out.reason = Reason::kError;
      break;
  }
  out.error = finish.error;
  if (out.reason == Reason::kError && !out.error)
    out.error = Error{ErrorCode::kInternal, "the engine gave no reason"};
  out.usage = {finish.usage.prompt_tokens, finish.usage.completion_tokens,
               finish.usage.cached_tokens, finish.usage.reasoning_tokens};
  out.matched_stop = finish.matched_stop;
  return out;
}

serving::ChatEvent to_chat_event(engine::TokenEvent event, int choice, const CallIds& ids,
                                 bool any_calls) {
  serving::ChatEvent out;
  out.choice = choice;
  out.ids = std::move(event.ids);
  for (chat::OutputDelta& delta : event.deltas) {
    std::string id = ids.first_id(delta);
    out.deltas.push_back({channel_of(delta.channel), std::move(delta.text), delta.call_index,
                          std::move(id), std::move(delta.call_name)});
  }
  for (engine::TokenLogprob& item : event.logprobs) {
    out.logprobs.push_back(convert_logprob<serving::ChatLogprob>(item));
  }
  if (event.finish) out.finish = to_chat_finish(*event.finish, any_calls);
  return out;
}

engine::Finish counted(const engine::PreparedJob& prepared) {
  engine::Finish out;
  out.reason = engine::FinishReason::kLength;
  out.usage.prompt_tokens = static_cast<std::int64_t>(prepared.prompt_ids.size());
  return out;
}

protocol::WireUsage to_wire(const engine::Usage& usage) {
  return {usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens,
          usage.reasoning_tokens};
}

protocol::Tokens to_tokens(engine::TokenEvent& event, const CallIds& ids) {
  protocol::Tokens out;
  out.first_index = event.first_index;
  out.ids = std::move(event.ids);
  for (chat::OutputDelta& delta : event.deltas) {
    std::string id = ids.first_id(delta);
    const bool is_call = delta.channel == chat::Channel::kToolCall;
    out.deltas.push_back({wire_channel(delta.channel), std::move(delta.text),
                          is_call ? static_cast<std::uint32_t>(std::max(0, delta.call_index)) : 0,
                          std::move(id), is_call ? std::move(delta.call_name) : std::string()});
  }
  for (engine::TokenLogprob& item : event.logprobs) {
    out.logprobs.push_back(convert_logprob<protocol::TokenLogprob>(item));
  }
  return out;
}

protocol::Finish to_wire_finish(const engine::Finish& finish, bool any_calls,
                                std::uint64_t num_ids) {
  protocol::Finish out;
  switch (finish.reason) {
    case engine::FinishReason::kStop:
      out.reason =
          any_calls ? protocol::WireFinishReason::kToolCalls : protocol::WireFinishReason::kStop;
      break;
    case engine::FinishReason::kLength:
      out.reason = protocol::WireFinishReason::kLength;
      break;
    case engine::FinishReason::kCancelled:
      out.reason = protocol::WireFinishReason::kCancelled;
      break;
    case engine::FinishReason::kError:
      out.reason = protocol::WireFinishReason::kError;
      out.error = protocol::to_wire(
          finish.error.value_or(Error{ErrorCode::kInternal, "the engine gave no reason"}));
      break;
  }
  out.matched_stop = finish.matched_stop;
  out.num_ids = num_ids;
  out.usage = to_wire(finish.usage);
  return out;
}

}  // namespace flotilla::provider
