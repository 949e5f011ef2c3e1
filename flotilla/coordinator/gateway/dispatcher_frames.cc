// What nodes send.
#include <algorithm>

#include "flotilla/base/overloaded.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::coordinator {
namespace {

serving::ChatLogprob to_event(protocol::TokenLogprob&& in) {
  serving::ChatLogprob out{in.id, in.logprob, std::move(in.bytes)};
  for (protocol::TokenLogprob& other : in.top)
    out.top.push_back({other.id, other.logprob, std::move(other.bytes)});
  return out;
}

serving::ChatUsage to_event(const protocol::WireUsage& usage) {
  return {usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens,
          usage.reasoning_tokens};
}

serving::ChatDelta::Channel to_event(protocol::TextChannel channel) {
  switch (channel) {
    case protocol::TextChannel::kContent:
      return serving::ChatDelta::Channel::kContent;
    case protocol::TextChannel::kReasoning:
      return serving::ChatDelta::Channel::kReasoning;
    case protocol::TextChannel::kToolCall:
      break;
  }
  return serving::ChatDelta::Channel::kToolCall;
}

// A node's numbers are claims. What the accounts and the log get of them keeps to what is known.
void bound(protocol::WireUsage& usage, const Job& job) {
  const auto prompt = static_cast<std::int64_t>(job.prompt_tokens);
  const auto output = static_cast<std::int64_t>(job.ids.size());
  usage.prompt_tokens = prompt;
  usage.cached_tokens = std::clamp<std::int64_t>(usage.cached_tokens, 0, prompt);
  usage.completion_tokens = output;  // every token counts once, whichever nodes computed it
  usage.reasoning_tokens = std::clamp<std::int64_t>(usage.reasoning_tokens, 0, output);
}

bool is_of_request(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kContextLength ||
         code == ErrorCode::kTooLarge || code == ErrorCode::kUnsupported;
}

// Adds to what the client will have; gives a call without an id its id. True when the client sees
// something of it.
bool account(Job& job, protocol::TextDelta& delta) {
  switch (delta.channel) {
    case protocol::TextChannel::kContent:
      job.emitted.content += delta.text.size();
      return !delta.text.empty();
    case protocol::TextChannel::kReasoning:
      job.emitted.reasoning += delta.text.size();
      return !delta.text.empty();
    case protocol::TextChannel::kToolCall:
      break;
  }
  std::vector<std::uint64_t>& calls = job.emitted.tool_calls;
  if (delta.call_index >= calls.size()) {
    calls.resize(delta.call_index + std::size_t{1});
    if (delta.call_id.empty()) delta.call_id = protocol::tool_call_id(job.id, delta.call_index);
  }
  calls[delta.call_index] += delta.text.size();
  return true;
}

}  // namespace

Job* Dispatcher::current(const ProviderRecord& provider, const JobId& id, std::uint32_t attempt) {
  Job* job = table_.job(id);
  if (job != nullptr && job->attempt == attempt && job->provider == &provider) return job;
  metrics_.frame_dropped();
  return nullptr;
}

void Dispatcher::node_message(const ProviderId& id, const NodeLink* from, const JobId& job_id,
                              std::uint32_t attempt, protocol::ProviderMessage message) {
  ProviderRecord* provider = registry_.find(id);
  if (provider == nullptr || provider->link.get() != from) return;
  heard(*provider, clock_.now());
  const Job* touched = table_.job(job_id);
  const std::optional<RequestId> request =
      touched != nullptr ? std::optional<RequestId>(touched->request) : std::nullopt;
  std::visit(Overloaded{[&](protocol::Register& m) {
                          provider->software = m.software;
                          provider->hardware = m.hardware;
                          provider->shows_progress = m.progress_interval_ms > 0;
                          set_models(*provider, m, /*fresh=*/false);
                          protocol::Registered reply;
                          reply.provider = provider->id.value;
                          reply.heartbeat_interval_ms =
                              static_cast<std::uint32_t>(limits_.heartbeat_interval.count());
                          reply.dead_after_ms =
                              static_cast<std::uint32_t>(limits_.dead_after.count());
                          provider->link->send(std::move(reply), {}, 0);
                          on_models_changed_();
                          pump_all();
                        },
                        [&](protocol::Heartbeat& m) { on_heartbeat(*provider, m); },
                        [&](protocol::Lease& m) {
                          Job* hedged = table_.job(job_id);
                          if (hedged != nullptr && is_hedge(*hedged, *provider, attempt))
                            promote_hedge(*hedged, End::kCancel, "hedged");
                          if (Job* job = current(*provider, job_id, attempt)) on_lease(*job, m);
                        },
                        [&](protocol::Refuse& m) {
                          Job* hedged = table_.job(job_id);
                          if (hedged != nullptr && is_hedge(*hedged, *provider, attempt))
                            return on_hedge_refused(*hedged, m);
                          if (Job* job = current(*provider, job_id, attempt)) on_refuse(*job, m);
                        },
                        [&](protocol::Tokens& m) {
                          if (Job* job = current(*provider, job_id, attempt))
                            on_tokens(*job, std::move(m));
                        },
                        [&](protocol::Finish& m) {
                          if (table_.is_cancelled(job_id, attempt))
                            return;  // crossed our Cancel: its ack follows
                          if (Job* job = current(*provider, job_id, attempt)) {
                            bound(m.usage, *job);
                            on_finish(*job, m);
                          }
                        },
                        [&](protocol::CancelAck&) { on_cancel_ack(job_id, attempt); },
                        [&](protocol::ModelStatus& m) { on_model_status(*provider, m); },
                        [&](protocol::Progress& m) { on_progress(*provider, m); },
                        [&](protocol::Drain& m) { on_drain(*provider, m); },
                        [&](protocol::Recalled& m) {
                          if (recall_.on_report) recall_.on_report(provider->id, m);
                        }},
             message);
  if (request) erase_if_done(*request);
}

void Dispatcher::on_lease(Job& job, const protocol::Lease& lease) {
  if (job.state != JobState::kPreparing) {
    metrics_.frame_dropped();
    return;
  }
  if (lease.prompt_tokens > kMaxJobTokens || lease.granted_tokens > kMaxJobTokens) {
    const std::string model = table_.request(job.request)->model;
    log::warn("lease_out_of_range", {{"node", job.provider->node},
                                     {"job", protocol::to_hex(job.id)},
                                     {"prompt_tokens", lease.prompt_tokens},
                                     {"granted_tokens", lease.granted_tokens}});
    if (job.hedge) {  // somebody else is asked already
      job.excluded.push_back(job.provider->id);
      promote_hedge(job, End::kCancel, "failed");
    } else {
      attempt_failed(job, End::kCancel, "failed",
                     {ErrorCode::kInternal, "the node's lease is for more than " +
                                                std::to_string(kMaxJobTokens) + " tokens"},
                     Blame::kNode);
    }
    pump(model);
    return;
  }
  drop_hedge(job, End::kCancel, "hedged");
  start_leased(job, lease);
}

Dispatcher::Blame Dispatcher::heed_refusal(ProviderRecord& provider, const std::string& model,
                                           const protocol::Refuse& refuse) {
  const auto wait = std::clamp<std::chrono::milliseconds>(
      std::chrono::milliseconds(refuse.retry_after_ms), limits_.min_busy, limits_.max_busy);
  switch (refuse.reason) {
    case protocol::RefuseReason::kBusy:
    case protocol::RefuseReason::kMemory:
    case protocol::RefuseReason::kUnhealthy:
      // Its state, not this job's: it is left alone for a while, then asked again, until the job's
      // time to wait is over.
      registry_.mark_busy(provider, model, clock_.now() + wait);
      return Blame::kNobody;
    case protocol::RefuseReason::kDraining:
      provider.draining = true;
      registry_.reindex_all(provider);
      return Blame::kNobody;
    case protocol::RefuseReason::kNotLoaded:
      // It went while the job was on its way. The node may load it again, or another one has it.
      provider.slots.at(model).offer.loaded = false;
      registry_.reindex(provider, model);
      on_models_changed_();
      return Blame::kNobody;
    case protocol::RefuseReason::kInvalidRequest:
    case protocol::RefuseReason::kPromptMismatch:
    case protocol::RefuseReason::kOther:
      break;
  }
  return Blame::kNode;
}

// The prompt is too long for this node. True when others have more room: only they are left then.
bool Dispatcher::exclude_smaller(Job& job) {
  if (job.begun()) return false;
  const std::string& model = table_.request(job.request)->model;
  const auto* index = registry_.model(model);
  const auto room_of = [&](const ProviderRecord& provider) {
    return provider.slots.at(model).offer.context_length;
  };
  const std::int64_t room = room_of(*job.provider);
  std::vector<ProviderId> smaller;
  bool has_larger = false;
  for (const ProviderRecord* provider : index->members) {
    if (room_of(*provider) <= room) {
      smaller.push_back(provider->id);
    } else if (std::find(job.excluded.begin(), job.excluded.end(), provider->id) ==
               job.excluded.end()) {
      has_larger = true;
    }
  }
  if (has_larger) job.excluded.insert(job.excluded.end(), smaller.begin(), smaller.end());
  return has_larger;
}

void Dispatcher::on_refuse(Job& job, const protocol::Refuse& refuse) {
  const std::string model = table_.request(job.request)->model;
  Error error = protocol::from_wire(refuse.error);
  if (error.code == ErrorCode::kContextLength && exclude_smaller(job)) {
    job.last_refusal = std::move(error);
    const auto& excluded = job.excluded;
    if (job.hedge &&
        std::find(excluded.begin(), excluded.end(), job.hedge->provider->id) == excluded.end()) {
      promote_hedge(job, End::kDone, "refused");
    } else {
      end_attempt(job, End::kDone, "refused");
      place(job);
    }
    pump(model);
    return;
  }
  if (refuse.reason == protocol::RefuseReason::kInvalidRequest && !job.begun()) {
    end_attempt(job, End::kDone, "refused");
    fail_job(job, std::move(error));
    pump(model);
    return;
  }
  const Blame blame = heed_refusal(*job.provider, model, refuse);
  if (job.hedge) {  // somebody else is asked already
    if (blame == Blame::kNode) job.excluded.push_back(job.provider->id);
    job.last_refusal = std::move(error);
    promote_hedge(job, End::kDone, "refused");
  } else {
    // Also after its start: then it never ran, and its time to wait goes on.
    if (job.state == JobState::kRunning) job.state = JobState::kPreparing;
    attempt_failed(job, End::kDone, "refused", std::move(error), blame);
  }
  pump(model);
}

void Dispatcher::on_hedge_refused(Job& job, const protocol::Refuse& refuse) {
  const std::string model = table_.request(job.request)->model;
  if (heed_refusal(*job.hedge->provider, model, refuse) == Blame::kNode)
    job.excluded.push_back(job.hedge->provider->id);
  drop_hedge(job, End::kDone, "refused");
  pump(model);
}

void Dispatcher::on_tokens(Job& job, protocol::Tokens tokens) {
  const bool in_order = tokens.ids.empty() || tokens.first_index == job.ids.size();
  if (job.state != JobState::kRunning || !in_order) {
    const std::string model = table_.request(job.request)->model;
    log::warn("provider_out_of_order", {{"node", job.provider->node},
                                        {"job", protocol::to_hex(job.id)},
                                        {"first_index", tokens.first_index},
                                        {"expected", job.ids.size()}});
    attempt_failed(job, End::kCancel, "failed",
                   {ErrorCode::kInternal, "the node sent tokens out of order"}, Blame::kNode);
    pump(model);
    return;
  }
  if (job.max_output > 0 && job.ids.size() >= job.max_output && !tokens.ids.empty())
    return end_at_limit(job);
  job.last_progress = clock_.now();
  ++job.num_frames;
  if (!tokens.ids.empty()) {
    if (job.first_token_after.count() == 0) {
      job.first_token_after = job.last_progress - job.started_at;
      prefill_done(job, *job.provider);
    }
    note_progress(job, job.last_progress);
  }
  metrics_.tokens_relayed(tokens.ids.size());
  note_served(job, tokens.ids.size());
  if (job.num_resumed == 0 && tokens.cached_tokens > 0) {
    job.cached_tokens =
        std::min<std::int64_t>(tokens.cached_tokens, static_cast<std::int64_t>(job.prompt_tokens));
  }
  job.ids.insert(job.ids.end(), tokens.ids.begin(), tokens.ids.end());
  serving::ChatEvent event;
  event.choice = static_cast<int>(job.choice);
  event.ids = std::move(tokens.ids);
  event.prompt_tokens = static_cast<std::int64_t>(job.prompt_tokens);
  bool has_content = false;
  for (protocol::TextDelta& delta : tokens.deltas) {
    has_content = account(job, delta) || has_content;
    const bool is_call = delta.channel == protocol::TextChannel::kToolCall;
    event.deltas.push_back({to_event(delta.channel), std::move(delta.text),
                            is_call ? static_cast<int>(delta.call_index) : -1,
                            std::move(delta.call_id), std::move(delta.call_name)});
  }
  for (protocol::TokenLogprob& entry : tokens.logprobs)
    event.logprobs.push_back(to_event(std::move(entry)));
  emit(job, std::move(event), has_content);
}

// A node that does not know the limit goes on; what it computes beyond is not paid for.
void Dispatcher::end_at_limit(Job& job) {
  const std::string model = table_.request(job.request)->model;
  serving::ChatFinish done;
  done.reason = serving::ChatFinish::Reason::kLength;
  done.usage.prompt_tokens = static_cast<std::int64_t>(job.prompt_tokens);
  done.usage.completion_tokens = static_cast<std::int64_t>(job.ids.size());
  done.usage.cached_tokens = job.cached_tokens;
  end_attempt(job, End::kCancel, "finished");
  finish_job(job, std::move(done));
  pump(model);
  update_gauges();
}

void Dispatcher::on_finish(Job& job, const protocol::Finish& finish) {
  using Reason = serving::ChatFinish::Reason;
  const std::string model = table_.request(job.request)->model;
  const auto fail = [&](Error why) {
    // Another node may do better where the fault was this node's; a fault of the request follows it
    // everywhere, unless a node before this one saw none.
    const bool of_request = job.num_resumed == 0 && is_of_request(why.code);
    if (of_request) {
      end_attempt(job, End::kDone, "failed");
      fail_job(job, std::move(why));
    } else {
      attempt_failed(job, End::kDone, "failed", std::move(why), Blame::kNode);
    }
  };
  if (job.state != JobState::kRunning) {
    fail({ErrorCode::kInternal, "the node finished a job that was not started"});
  } else if (finish.reason == protocol::WireFinishReason::kError || finish.error) {
    fail(finish.error ? protocol::from_wire(*finish.error)
                      : Error{ErrorCode::kInternal, "the generation failed"});
  } else if (finish.reason == protocol::WireFinishReason::kCancelled) {
    fail({ErrorCode::kUnavailable, "the node stopped the generation"});  // we did not ask for it
  } else if (const std::size_t sent = job.ids.size() - job.num_resumed; finish.num_ids != sent) {
    fail({ErrorCode::kInternal, "the node sent " + std::to_string(sent) + " of " +
                                    std::to_string(finish.num_ids) + " tokens"});
  } else {
    serving::ChatFinish done;
    const bool has_calls = !job.emitted.tool_calls.empty();
    done.reason = finish.reason == protocol::WireFinishReason::kLength ? Reason::kLength
                  : has_calls                                          ? Reason::kToolCalls
                                                                       : Reason::kStop;
    // The second node of an answer computes anew what the first one had in its cache.
    if (job.num_resumed == 0) job.cached_tokens = finish.usage.cached_tokens;
    done.usage = to_event(finish.usage);
    done.usage.cached_tokens = job.cached_tokens;
    done.matched_stop = finish.matched_stop;
    note_served(job, 0);
    machines_.success(job.provider->id);
    learn(job, finish);
    end_attempt(job, End::kDone, "finished");
    finish_job(job, std::move(done));
  }
  pump(model);
  update_gauges();
}

// How long things took, for the next choice. A continued answer says little: most of it was
// computed elsewhere.
void Dispatcher::learn(const Job& job, const protocol::Finish& finish) {
  if (job.num_resumed > 0) return;
  const auto seconds = [](Clock::Instant::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  Router::Outcome outcome;
  outcome.first_seconds = seconds(job.first_token_after);
  outcome.computed_tokens = static_cast<std::int64_t>(job.prompt_tokens) -
                            finish.usage.cached_tokens + job.route.prefill_ahead;
  outcome.all_seconds = seconds(clock_.now() - job.started_at);
  outcome.saved_tokens = job.route.saved_tokens;
  outcome.cached_tokens = finish.usage.cached_tokens;
  outcome.saved_prefix = job.route.saved_prefix;
  router_.learn_outcome(*job.provider, table_.request(job.request)->model, outcome);
}

void Dispatcher::on_cancel_ack(const JobId& job, std::uint32_t attempt) {
  const auto cancelled = table_.take_cancelled(job, attempt);
  if (!cancelled) {
    metrics_.frame_dropped();
    return;
  }
  if (ProviderRecord* provider = registry_.find(cancelled->provider))
    router_.release_slot(*provider, cancelled->model);
  pump(cancelled->model);
}

void Dispatcher::on_heartbeat(ProviderRecord& provider, const protocol::Heartbeat& message) {
  const Clock::Instant now = clock_.now();
  provider.link->send(protocol::HeartbeatAck{message.sequence}, {}, 0);
  if (message.acked_sequence > 0 && message.acked_sequence == provider.acked_sequence) {
    const auto there = std::chrono::microseconds(
        std::min<std::uint64_t>(message.ack_age_us, std::uint64_t{3'600'000'000}));
    if (const auto away = now - provider.acked_at; away > there)
      provider.round_trip.add(std::chrono::duration<double>(away - there).count(), now);
  }
  provider.acked_sequence = message.sequence;
  provider.acked_at = now;
  provider.free_bytes = message.free_bytes;
  bool changed = provider.draining != message.draining;
  provider.draining = message.draining;
  if (!provider.draining) provider.hand_over_at.reset();
  for (const protocol::SlotLoad& load : message.slots) {
    const auto slot = provider.slots.find(load.model);
    if (slot == provider.slots.end()) continue;
    changed = changed || slot->second.load.healthy != load.healthy;
    // Those who wait for memory hear of it from nobody else.
    const protocol::SlotLoad& before = slot->second.load;
    const auto free_of = [](const protocol::SlotLoad& l) {
      return l.kv_bytes_total - std::min(l.kv_bytes_total, l.kv_bytes_used);
    };
    changed =
        changed || (router_.modes().state == gates::Mode::kOn && free_of(load) > free_of(before));
    slot->second.load = load;
    slot->second.load_at = now;
    machines_.keep_speed(provider.id, load, provider.last_frame);
    machines_.recall_speed(provider.id, slot->second.load);  // a fresh process knows none yet
  }
  registry_.reindex_all(provider);
  if (changed) pump_all();
}

}  // namespace flotilla::coordinator
