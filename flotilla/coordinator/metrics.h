// Counters of the coordinator, for /metrics. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace flotilla::coordinator {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // One choice of one request. `outcome` is from a closed set: a finish reason or an error code.
  void job_finished(std::string_view outcome);
  // What became of an attempt on a node: "finished", "refused", "lost", "stalled", "handed_over",
  // "hedged", "mismatched", "timed_out", "failed", "cancelled".
  void attempt_ended(std::string_view how);
  void first_content(std::chrono::nanoseconds since_admission);
  void answer_continued(bool mixed_numerics);     // after its node was lost
  void answer_gap(std::chrono::nanoseconds gap);  // from the loss to the next token
  void gate_shadow(std::string_view reason);  // a job went where a gate in shadow would not let it
  void prefix_routed();                       // a job went to the node that holds its beginning
  void load_ordered(std::string_view what,
                    std::string_view why);  // "load", "unload"; "demand", "owner"
  void hedge_won();                         // the second Prepare became the attempt
  void node_silent();
  void tokens_relayed(std::uint64_t n);
  void frame_dropped();                       // late, of an attempt that is not current
  void cancel_unanswered();                   // a node did not acknowledge in time
  void node_refused(std::string_view fault);  // in the handshake
  void node_connected();
  void node_lost(std::string_view why);
  void set_jobs(std::size_t in_flight, std::size_t queued);
  void set_nodes(std::size_t connected);
  void set_api_keys(std::size_t active);

  // Prometheus text format.
  std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::coordinator
