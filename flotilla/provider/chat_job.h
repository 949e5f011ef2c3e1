// From the request of a client to the job of an engine, and back from the engine's events. The one
// place where the two vocabularies meet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::provider {

// Fills what the client left open with the model's own defaults, then OpenAI's. sampling_seed and
// render_time must be set. Token ids outside the vocabulary are refused by the name of their field.
Result<engine::ChatJob> to_chat_job(const api::ChatRequest& request, const engine::EngineInfo& info,
                                    int choice, const std::string& tenant);

// Sets sampling_seed (the client's seed, else random) and render_time.
void fix_at_admission(api::ChatRequest& request, std::int64_t now_unix_seconds);

// Ids of the calls of one choice: the same for every attempt of the job.
class CallIds {
 public:
  explicit CallIds(const JobId& job) : job_(job) {}
  // The id when `delta` is the first piece of its call, else "".
  std::string first_id(const chat::OutputDelta& delta) const;

 private:
  JobId job_;
};

serving::ChatEvent to_chat_event(engine::TokenEvent event, int choice, const CallIds& ids,
                                 bool any_calls);
serving::ChatFinish to_chat_finish(const engine::Finish& finish, bool any_calls);

// The end of a job that only counts.
engine::Finish counted(const engine::PreparedJob& prepared);

protocol::WireUsage to_wire(const engine::Usage& usage);
// The parts of `event` that are not its finish.
protocol::Tokens to_tokens(engine::TokenEvent& event, const CallIds& ids);
protocol::Finish to_wire_finish(const engine::Finish& finish, bool any_calls,
                                std::uint64_t num_ids);

// True when the event starts or continues a tool call.
bool has_calls(const engine::TokenEvent& event);

}  // namespace flotilla::provider
