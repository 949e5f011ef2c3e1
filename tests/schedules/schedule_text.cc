// Schedules as JSON. A member that has its default is left out: a shrunken schedule is short.
#include <array>
#include <boost/json.hpp>
#include <limits>
#include <utility>

#include "flotilla/json/json.h"
#include "schedule.h"

namespace flotilla::schedules {
namespace {

namespace bj = boost::json;

constexpr std::array<std::pair<Fault, std::string_view>, 4> kFaults = {{
    {Fault::kNone, "none"},
    {Fault::kNan, "nan"},
    {Fault::kOutputThrow, "output_throws"},
    {Fault::kSinkThrow, "sink_throws"},
}};

// One visitor per struct names its members once; Writer and Reader use them.
template <typename V, typename T>
void visit(V& v, T&& s) requires std::is_same_v<std::remove_cvref_t<T>, sampling::SamplingParams> {
  v("temperature", s.temperature);
  v("top_p", s.top_p);
  v("top_k", s.top_k);
  v("min_p", s.min_p);
  v("presence_penalty", s.presence_penalty);
  v("frequency_penalty", s.frequency_penalty);
  v("repetition_penalty", s.repetition_penalty);
  v("logit_bias", s.logit_bias);
  v("seed", s.seed);
  v("choice", s.choice);
}
template <typename V, typename T>
void visit(V& v, T&& r) requires std::is_same_v<std::remove_cvref_t<T>, RequestSpec> {
  v("prefix", r.prefix);
  v("prefix_tokens", r.prefix_tokens);
  v("tail", r.tail);
  v("tail_tokens", r.tail_tokens);
  v("max_tokens", r.max_tokens);
  v("min_tokens", r.min_tokens);
  v("ignore_eos", r.ignore_eos);
  v("top_logprobs", r.top_logprobs);
  v("stop_token_ids", r.stop_token_ids);
  v("stop", r.stop);
  visit(v, r.sampling);
}
template <typename V, typename T>
void visit(V& v, T&& a) requires std::is_same_v<std::remove_cvref_t<T>, Arrival> {
  v("step", a.step);
  v("tenant", a.tenant);
  v("resume_at", a.resume_at);
  v("cancel_step", a.cancel_step);
  v("pause_every", a.pause_every);
  v("pause_steps", a.pause_steps);
  v("fault", a.fault);
  v("fault_at", a.fault_at);
  visit(v, a.request);
}
template <typename V, typename T>
void visit(V& v, T&& s) requires std::is_same_v<std::remove_cvref_t<T>, Schedule> {
  v("variant", s.variant);
  v("max_batch_tokens", s.max_batch_tokens);
  v("prefill_chunk", s.prefill_chunk);
  v("max_sequences", s.max_sequences);
  v("max_bypass", s.max_bypass);
  v("force_preemption_every", s.force_preemption_every);
  v("spare_memory_percent", s.spare_memory_percent);
  v("prefix_cache_percent", s.prefix_cache_percent);
  v("evict_every", s.evict_every);
  v("checkpoint_interval", s.checkpoint_interval);
  v("failing_step", s.failing_step);
}

struct Writer {
  bj::object out = {};
  template <typename T>
  void operator()(std::string_view name, const T& value) {
    if constexpr (std::is_same_v<T, Fault>) {
      for (const auto& [fault, text] : kFaults) {
        if (fault == value) out[name] = text;
      }
    } else {
      out[name] = bj::value_from(value);
    }
  }
};

// Removes what equals the default.
template <typename T>
bj::object written(const T& value) {
  Writer all, defaults;
  visit(all, value);
  visit(defaults, T{});
  bj::object out;
  for (const auto& member : all.out) {
    if (defaults.out.at(member.key()) != member.value()) out[member.key()] = member.value();
  }
  return out;
}

struct Reader {
  const bj::object& from;
  Status status = ok_status();
  std::size_t num_read = 0;
  template <typename T>
  void operator()(std::string_view name, T& value) {
    const bj::value* found = from.if_contains(name);
    if (found == nullptr) return;
    ++num_read;
    if constexpr (std::is_same_v<T, Fault>) {
      for (const auto& [fault, text] : kFaults) {
        if (*found == bj::value(text)) value = fault;
      }
    } else {
      auto parsed = bj::try_value_to<T>(*found);
      if (parsed.has_value()) {
        value = *parsed;
      } else {
        status = Error{ErrorCode::kInvalidArgument, "'" + std::string(name) + "' is malformed"};
      }
    }
  }
};

template <typename T>
Status read(const bj::object& from, T& value, std::size_t num_others) {
  Reader reader{from};
  visit(reader, value);
  if (reader.status.ok() && reader.num_read + num_others != from.size()) {
    return Error{ErrorCode::kInvalidArgument, "an unknown member in " + bj::serialize(from)};
  }
  return reader.status;
}

}  // namespace

std::string to_text(const RequestSpec& request) { return bj::serialize(written(request)); }

std::string to_text(const Schedule& schedule) {
  bj::object out = written(schedule);
  bj::array& arrivals = out["arrivals"].emplace_array();
  for (const Arrival& arrival : schedule.arrivals) arrivals.push_back(written(arrival));
  return bj::serialize(out);
}

Result<Schedule> schedule_from_text(std::string_view text) {
  FLOTILLA_TRY(const bj::value parsed, json::parse(text));
  const bj::object* object = parsed.if_object();
  const bj::value* arrivals = json::find(parsed, "arrivals");
  if (object == nullptr || arrivals == nullptr || !arrivals->is_array()) {
    return Error{ErrorCode::kInvalidArgument, "a schedule is an object with an array 'arrivals'"};
  }
  Schedule schedule;
  FLOTILLA_TRY_STATUS(read(*object, schedule, 1));
  for (const bj::value& value : arrivals->get_array()) {
    if (!value.is_object()) {
      return Error{ErrorCode::kInvalidArgument, "an arrival must be an object"};
    }
    schedule.arrivals.emplace_back();
    FLOTILLA_TRY_STATUS(read(value.get_object(), schedule.arrivals.back(), 0));
  }
  return schedule;
}

}  // namespace flotilla::schedules
