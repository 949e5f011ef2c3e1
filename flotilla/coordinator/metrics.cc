#include "flotilla/coordinator/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace flotilla::coordinator {

namespace prom = prometheus;

struct Metrics::Impl {
  prom::Registry registry;

  prom::Family<prom::Counter>& counter(const std::string& name, const std::string& help) {
    return prom::BuildCounter().Name("flotilla_" + name).Help(help).Register(registry);
  }
  prom::Gauge& gauge(const std::string& name, const std::string& help) {
    return prom::BuildGauge().Name("flotilla_" + name).Help(help).Register(registry).Add({});
  }

  prom::Family<prom::Counter>& jobs =
      counter("jobs_total", "Choices of requests, by how they ended");
  prom::Family<prom::Counter>& attempts =
      counter("attempts_total", "Attempts on nodes, by how they ended");
  prom::Counter& tokens = counter("tokens_relayed_total", "Generated tokens relayed").Add({});
  prom::Counter& dropped =
      counter("frames_dropped_total", "Frames of attempts that were not current").Add({});
  prom::Family<prom::Counter>& continued = counter(
      "answers_continued_total", "Answers that went on elsewhere after their node was lost");
  prom::Counter& silent =
      counter("nodes_silent_total", "Times that a node with work stopped sending").Add({});
  prom::Histogram& gap_seconds =
      prom::BuildHistogram()
          .Name("flotilla_answer_gap_seconds")
          .Help("From the loss of an answer's node to its next token")
          .Register(registry)
          .Add({}, prom::Histogram::BucketBoundaries{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30});
  prom::Family<prom::Counter>& shadow =
      counter("gate_shadow_total", "Jobs that a gate in shadow would have kept from their node");
  prom::Counter& prefix_routed =
      counter("prefix_routed_total", "Jobs that went to the node that holds their beginning")
          .Add({});
  prom::Counter& hedges =
      counter("hedges_won_total", "Second Prepares that became the attempt").Add({});
  prom::Family<prom::Counter>& loads =
      counter("loads_ordered_total", "Models that nodes were told to load or unload");
  prom::Counter& unanswered = counter("cancels_unanswered_total",
                                      "Cancelled attempts that a node did not acknowledge in time")
                                  .Add({});
  prom::Family<prom::Counter>& refused =
      counter("nodes_refused_total", "Nodes turned away in the handshake, by fault");
  prom::Counter& connected = counter("nodes_connected_total", "Nodes that registered").Add({});
  prom::Family<prom::Counter>& lost =
      counter("nodes_lost_total", "Connections of nodes that ended, by reason");
  prom::Gauge& jobs_in_flight = gauge("jobs_in_flight", "Choices under way, queued ones included");
  prom::Gauge& jobs_queued = gauge("jobs_queued", "Choices waiting for a node");
  prom::Gauge& nodes = gauge("nodes", "Nodes connected");
  prom::Gauge& api_keys = gauge("api_keys_active", "API keys that are valid");
  prom::Histogram& first_content_seconds =
      prom::BuildHistogram()
          .Name("flotilla_first_content_seconds")
          .Help("From admission to the first content")
          .Register(registry)
          .Add({}, prom::Histogram::BucketBoundaries{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
                                                     10, 30, 60, 120});
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::job_finished(std::string_view outcome) {
  impl_->jobs.Add({{"outcome", std::string(outcome)}}).Increment();
}
void Metrics::attempt_ended(std::string_view how) {
  impl_->attempts.Add({{"how", std::string(how)}}).Increment();
}
void Metrics::first_content(std::chrono::nanoseconds since_admission) {
  impl_->first_content_seconds.Observe(std::chrono::duration<double>(since_admission).count());
}
void Metrics::answer_continued(bool mixed_numerics) {
  impl_->continued.Add({{"numerics", mixed_numerics ? "mixed" : "same"}}).Increment();
}
void Metrics::answer_gap(std::chrono::nanoseconds gap) {
  impl_->gap_seconds.Observe(std::chrono::duration<double>(gap).count());
}
void Metrics::gate_shadow(std::string_view reason) {
  impl_->shadow.Add({{"reason", std::string(reason)}}).Increment();
}
void Metrics::prefix_routed() { impl_->prefix_routed.Increment(); }
void Metrics::load_ordered(std::string_view what, std::string_view why) {
  impl_->loads.Add({{"what", std::string(what)}, {"why", std::string(why)}}).Increment();
}
void Metrics::hedge_won() { impl_->hedges.Increment(); }
void Metrics::node_silent() { impl_->silent.Increment(); }
void Metrics::tokens_relayed(std::uint64_t n) { impl_->tokens.Increment(static_cast<double>(n)); }
void Metrics::frame_dropped() { impl_->dropped.Increment(); }
void Metrics::cancel_unanswered() { impl_->unanswered.Increment(); }
void Metrics::node_refused(std::string_view fault) {
  impl_->refused.Add({{"fault", std::string(fault)}}).Increment();
}
void Metrics::node_connected() { impl_->connected.Increment(); }
void Metrics::node_lost(std::string_view why) {
  impl_->lost.Add({{"why", std::string(why)}}).Increment();
}
void Metrics::set_jobs(std::size_t in_flight, std::size_t queued) {
  impl_->jobs_in_flight.Set(static_cast<double>(in_flight));
  impl_->jobs_queued.Set(static_cast<double>(queued));
}
void Metrics::set_nodes(std::size_t connected) { impl_->nodes.Set(static_cast<double>(connected)); }
void Metrics::set_api_keys(std::size_t active) { impl_->api_keys.Set(static_cast<double>(active)); }

std::string Metrics::render() const {
  return prom::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace flotilla::coordinator
