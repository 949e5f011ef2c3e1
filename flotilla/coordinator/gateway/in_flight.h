// Requests and their jobs while they are under way. Core strand only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/coordinator/gateway/till.h"
#include "flotilla/coordinator/money/job_money.h"
#include "flotilla/coordinator/registry/provider_record.h"
#include "flotilla/coordinator/routing/router.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::coordinator {

// Takes one event; false asks for a pause. Must not call back into the dispatcher.
using EventSink = std::function<bool(serving::ChatEvent)>;

enum class JobState : std::uint8_t {
  kQueued,     // waits for a node
  kPreparing,  // Prepare sent
  kRunning,    // Start sent
};

// A second Prepare, while the first is not answered.
struct Hedge {
  ProviderRecord* provider = nullptr;
  std::uint32_t attempt = 0;
  Route route;
};

// One choice of one request.
struct Job {
  JobId id;
  RequestId request;
  std::uint32_t choice = 0;
  JobState state = JobState::kQueued;

  // The current attempt. Frames of any other are dropped.
  std::uint32_t attempt = 0;
  ProviderRecord* provider = nullptr;  // null while queued
  std::uint32_t newest_attempt = 0;    // the highest number given out
  std::optional<Hedge> hedge;          // only while preparing
  Clock::Instant attempt_since{};
  Clock::Instant last_progress{};
  std::uint64_t num_frames = 0;                  // Tokens frames of this attempt
  Route route;                                   // what was expected of it
  Clock::Instant started_at{};                   // Start was sent
  Clock::Instant::duration first_token_after{};  // zero: none came yet

  // Nodes that this job does not go to again, and why the last one did not do.
  std::vector<ProviderId> excluded;
  std::uint32_t strikes = 0;    // kStrike for an attempt that ended badly since the last token
  std::uint32_t num_badly = 0;  // such attempts, ever; a node being busy does not count
  std::optional<Error> last_refusal;
  Clock::Instant queue_deadline{};  // absolute: no retry moves it, only the loss of a node does

  // What a continuation elsewhere needs: every id received and, by channel, the bytes passed on;
  // whose weights and whose numbers they came from.
  std::uint64_t prompt_tokens = 0;
  std::string prompt_digest;
  std::string model_digest;
  std::string numerics_id;
  std::vector<TokenId> ids;
  protocol::EmittedBytes emitted;
  std::size_t num_resumed = 0;            // of the ids, those that the current attempt was given
  bool mixed_numerics = false;            // a part was computed where the bits may differ
  std::optional<Clock::Instant> lost_at;  // the last attempt's end, until the answer goes on
  bool begun() const { return !ids.empty(); }

  // Money (dispatcher_money.cc). A job starts when what it may cost is held, where it costs
  // anything.
  bool asked_to_hold = false;  // and not answered yet
  bool funded = false;
  std::optional<protocol::Lease> waiting;  // the current attempt's, while that is asked
  Clock::Instant asked_at{};               // for the money
  std::vector<ProviderId> known_nodes;     // what the till knows of where the job was
  Reservation reservation;
  std::int64_t cached_tokens = 0;  // of the prompt, on the node where the answer began
  std::uint64_t max_output = 0;    // tokens that it may have on whichever node; 0: not known
  std::uint64_t num_marked = 0;    // tokens that the till knows to be delivered
  Clock::Instant marked_at{};
  std::vector<std::pair<ProviderId, std::uint64_t>>
      served;  // tokens by node, since the answer began

  // Events kept back until the commit: with the first content of a stream, at the end otherwise.
  // Until then the answer may begin anew; after it only an exact continuation will do.
  bool committed = false;
  std::deque<serving::ChatEvent> held;
  std::size_t held_bytes = 0;
};

// So much weighs an attempt that failed by itself; a node that was lost with many jobs weighs less
// for each.
inline constexpr std::uint32_t kStrike = 4;

// What a client was handed of one choice.
struct Handed {
  bool any = false;
  std::uint64_t tokens = 0;
};

struct Request {
  RequestId id;
  std::uint64_t key = 0;  // the API key: keys take turns in the queue
  AccountId account;      // pays
  bool is_free = false;   // whatever the prices are
  std::string name;       // request id in logs
  std::string model;
  bool stream = false;
  std::shared_ptr<const protocol::Prepare> prepare;
  std::shared_ptr<const RouteAsk> ask;  // may be null
  EventSink sink;
  Clock::Instant admitted{};
  std::vector<JobId> jobs;  // not finished
  bool seen_content = false;

  bool paused = false;                     // the client reads slowly
  std::deque<serving::ChatEvent> pending;  // while paused
  std::size_t pending_bytes = 0;

  std::vector<Handed> handed;  // by choice
  // Ended, but the client may still not get them: the answer is not streamed and not whole yet, or
  // the end of it is pending.
  struct Kept {
    std::uint32_t choice = 0;
    EndedJob job;
  };
  std::vector<Kept> kept;
};

// Attempts that were cancelled: they hold their slot until the node acknowledges.
struct CancelledAttempt {
  ProviderId provider;
  std::string model;
  Clock::Instant since{};
};

class InFlightTable {
 public:
  Request& add_request(Request request);
  Job& add_job(Request& request, const JobId& id, std::uint32_t choice);
  Request* request(RequestId id);
  Job* job(const JobId& id);
  void erase_job(const JobId& id);  // from its request too
  void erase_request(RequestId id);

  void add_cancelled(const JobId& job, std::uint32_t attempt, CancelledAttempt cancelled);
  std::optional<CancelledAttempt> take_cancelled(const JobId& job, std::uint32_t attempt);
  bool is_cancelled(const JobId& job, std::uint32_t attempt) const;
  // Takes those that waited longer than `limit`.
  std::vector<CancelledAttempt> take_overdue(Clock::Instant now, std::chrono::nanoseconds limit);
  void drop_cancelled_of(const ProviderId& provider);

  std::unordered_map<JobId, Job>& jobs() { return jobs_; }
  std::size_t num_jobs() const { return jobs_.size(); }
  std::size_t num_requests() const { return requests_.size(); }
  std::size_t num_cancelled() const { return cancelled_.size(); }

 private:
  struct AttemptKey {
    JobId job;
    std::uint32_t attempt = 0;
    bool operator==(const AttemptKey&) const = default;
  };
  struct AttemptHash {
    std::size_t operator()(const AttemptKey& key) const {
      return std::hash<JobId>()(key.job) + key.attempt;
    }
  };
  std::unordered_map<RequestId, Request> requests_;
  std::unordered_map<JobId, Job> jobs_;
  std::unordered_map<AttemptKey, CancelledAttempt, AttemptHash> cancelled_;
};

}  // namespace flotilla::coordinator
