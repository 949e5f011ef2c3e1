// One node that answers from the script.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "bench/fleet/script.h"
#include "flotilla/provider/coordinator_link.h"

namespace flotilla::bench {

// Of all nodes of the process.
struct NodeCounters {
  std::atomic<std::int64_t> up{0}, joined{0}, lost{0};
  std::atomic<std::int64_t> jobs{0}, finished{0}, cancelled{0}, tokens{0}, refused{0};
};

struct NodeSetup {
  std::string model;
  std::uint32_t slots = 1;
  Script script;
};

// Everything on the node's strand.
class ScriptedNode : public std::enable_shared_from_this<ScriptedNode> {
 public:
  // `io`, `clock` and `counters` must outlive it.
  ScriptedNode(net::IoRuntime& io, const Clock& clock, NodeSetup setup, NodeCounters& counters);
  void start(provider::LinkOptions options);  // any thread
  void stop();                                // any thread

 private:
  struct Job {
    std::uint32_t attempt = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t max_tokens = 0;
    bool started = false;
    bool paused = false;
    bool flowing = false;        // stands in `flowing_`
    std::uint64_t first = 0;     // index of its first own token
    std::uint64_t next = 0;      // of the next one
    std::uint64_t text_due = 0;  // bytes of tokens before it that the client lacks
    Clock::Instant due{};        // of the next frame, on a timetable
  };
  void on_message(const protocol::FrameHeader& header, protocol::CoordinatorMessage message);
  void prepare(const JobId& id, std::uint32_t attempt, const protocol::Prepare& prepare);
  void begin(const JobId& id, Job& job, const protocol::Start& start);
  void finish(const JobId& id, const Job& job);
  void send_frame(const JobId& id, Job& job);
  void schedule(const JobId& id, Job& job, Clock::Instant due);
  void on_timer();
  void flow();
  protocol::Register make_register() const;
  protocol::Heartbeat make_heartbeat() const;

  net::IoRuntime& io_;
  const Clock& clock_;
  const net::Strand strand_;
  const NodeSetup setup_;
  NodeCounters& counters_;
  net::Timer timer_;       // of the timetable
  net::Timer flow_timer_;  // while the link is full
  std::shared_ptr<provider::CoordinatorLink> link_;
  std::unordered_map<JobId, Job> jobs_;
  std::deque<JobId> timetable_;  // jobs in the order of their due frames
  std::deque<JobId> flowing_;    // jobs that send as fast as the link takes it, in turns
  bool timer_set_ = false;
  bool flow_posted_ = false;
};

}  // namespace flotilla::bench
