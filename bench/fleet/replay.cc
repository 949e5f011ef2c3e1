#include "bench/fleet/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <list>
#include <queue>
#include <random>
#include <sstream>
#include <unordered_map>

#include "bench/fleet/policy.h"
#include "bench/fleet/process_stat.h"

namespace flotilla::bench {
namespace {

constexpr double kHeartbeatSeconds = 5;

class SimNode {
 public:
  SimNode(const NodeModel& model, double speed) : model_(model), speed_(speed) {}

  struct Plan {
    double first = 0, finish = 0;  // when
    std::int64_t cached = 0;
  };
  // Takes a job that reaches the coordinator's choice now.
  Plan start(const Arrival& job, double now) {
    ++running_;
    Plan out;
    out.cached = std::min({take(job.conversation), job.cached_prefix, job.prompt_tokens - 1});
    const double computing = static_cast<double>(job.prompt_tokens - out.cached) /
                             (model_.prefill_tokens_per_s * speed_);
    prefill_free_ = std::max(prefill_free_, now + model_.network_s) + computing;
    out.first = prefill_free_ + model_.network_s;
    const double per_token = (1 + model_.slowdown * static_cast<double>(running_ - 1)) /
                             (model_.decode_tokens_per_s * speed_);
    const double decoding = per_token * static_cast<double>(job.output_tokens - 1);
    out.finish = out.first + decoding;
    busy_ += computing + decoding / static_cast<double>(model_.slots);
    keep(job.conversation, job.prompt_tokens);
    return out;
  }
  void end() { --running_; }
  std::size_t running() const { return running_; }
  double prefill_speed() const { return model_.prefill_tokens_per_s * speed_; }
  double busy() const { return busy_; }

 private:
  std::int64_t take(std::uint64_t conversation) {
    const auto at = cache_.find(conversation);
    return at == cache_.end() ? 0 : at->second->tokens;
  }
  void keep(std::uint64_t conversation, std::int64_t tokens) {
    if (const auto at = cache_.find(conversation); at != cache_.end()) {
      cached_tokens_ -= at->second->tokens;
      order_.erase(at->second);
    }
    order_.push_front({conversation, tokens});
    cache_[conversation] = order_.begin();
    cached_tokens_ += tokens;
    while (cached_tokens_ > model_.cache_tokens && order_.size() > 1) {
      cached_tokens_ -= order_.back().tokens;
      cache_.erase(order_.back().conversation);
      order_.pop_back();
    }
  }
  struct Entry {
    std::uint64_t conversation;
    std::int64_t tokens;
  };
  const NodeModel model_;
  const double speed_;
  std::list<Entry> order_;  // the newest first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> cache_;
  std::int64_t cached_tokens_ = 0;
  double prefill_free_ = 0;
  double busy_ = 0;  // seconds of its own time
  std::size_t running_ = 0;
};

struct Event {
  enum class Kind { kArrival, kFirst, kFinish, kHeartbeat };
  double at = 0;
  std::uint64_t order = 0;
  Kind kind = Kind::kArrival;
  std::uint64_t ticket = 0;  // index of the arrival
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

}  // namespace

Result<ReplayResult> replay(const std::vector<Arrival>& trace, const std::string& policy_name,
                            const ReplayOptions& options) {
  FakeClock clock;
  clock.advance(std::chrono::hours(1));  // zero means "never" in places
  const auto num_nodes = static_cast<std::size_t>(options.nodes);
  FLOTILLA_TRY(const auto policy,
               make_policy(policy_name, num_nodes, static_cast<std::size_t>(options.node.slots),
                           clock, options.seed));
  std::vector<SimNode> nodes;
  for (std::size_t i = 0; i < num_nodes; ++i) {
    const double place =
        num_nodes > 1 ? static_cast<double>(i) / static_cast<double>(num_nodes - 1) : 0.5;
    nodes.emplace_back(options.node, std::pow(options.spread, place - 0.5));
  }
  struct Under {
    std::size_t node = 0;
    double started = 0;
    SimNode::Plan plan;
  };
  std::unordered_map<std::uint64_t, Under> running;
  std::deque<std::uint64_t> queue;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::uint64_t order = 0;
  const auto add = [&](double at, Event::Kind kind, std::uint64_t ticket) {
    events.push({at, order++, kind, ticket});
  };
  for (std::size_t i = 0; i < trace.size(); ++i) add(trace[i].at, Event::Kind::kArrival, i);
  add(0, Event::Kind::kHeartbeat, 0);
  std::vector<double> firsts;
  double now = 0, cached = 0, cacheable = 0, prompts = 0;
  std::size_t num_done = 0;
  const auto start = [&](std::uint64_t ticket) {
    const Arrival& job = trace[ticket];
    const auto node = policy->choose(ticket, job);
    if (!node) return false;
    const SimNode::Plan plan = nodes[*node].start(job, now);
    running[ticket] = {*node, now, plan};
    firsts.push_back(plan.first - job.at);
    cached += static_cast<double>(plan.cached);
    cacheable += static_cast<double>(job.cached_prefix);
    prompts += static_cast<double>(job.prompt_tokens);
    add(plan.first, Event::Kind::kFirst, ticket);
    add(plan.finish, Event::Kind::kFinish, ticket);
    return true;
  };
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    clock.advance(std::chrono::nanoseconds(static_cast<std::int64_t>((event.at - now) * 1e9)));
    now = event.at;
    switch (event.kind) {
      case Event::Kind::kArrival:
        if (!queue.empty() || !start(event.ticket)) queue.push_back(event.ticket);
        break;
      case Event::Kind::kFirst:
        policy->first_content(event.ticket);
        break;
      case Event::Kind::kFinish: {
        const Under& under = running.at(event.ticket);
        policy->finished(event.ticket, {under.plan.first - under.started,
                                        under.plan.finish - under.started, under.plan.cached});
        nodes[under.node].end();
        running.erase(event.ticket);
        ++num_done;
        while (!queue.empty() && start(queue.front())) queue.pop_front();
        break;
      }
      case Event::Kind::kHeartbeat:
        for (std::size_t i = 0; i < nodes.size(); ++i)
          policy->heartbeat(i, nodes[i].running(), nodes[i].prefill_speed());
        if (num_done < trace.size()) add(now + kHeartbeatSeconds, Event::Kind::kHeartbeat, 0);
        break;
    }
  }
  ReplayResult out;
  out.num_done = num_done;
  const Quantiles q = quantiles(firsts);
  out.first_p50 = q.p50;
  out.first_p99 = q.p99;
  out.cached_share = cacheable > 0 ? cached / cacheable : 0;
  out.computed_share = prompts > 0 ? 1 - cached / prompts : 0;
  double most = 0, sum = 0;
  for (const SimNode& node : nodes) {
    most = std::max(most, node.busy());
    sum += node.busy();
  }
  out.busiest = sum > 0 ? most * static_cast<double>(nodes.size()) / sum : 0;
  return out;
}

Result<bool> run_replay(const ReplayOptions& options) {
  std::vector<Arrival> trace;
  if (options.trace.empty()) {
    trace = make_trace(options.made);
  } else {
    FLOTILLA_TRY(trace, read_trace(options.trace));
  }
  if (!options.json) {
    std::printf("%zu arrivals, %lld nodes\n", trace.size(), static_cast<long long>(options.nodes));
    std::printf("%-18s %9s %9s %8s %9s %8s\n", "policy", "first p50", "p99", "cached", "computed",
                "busiest");
  }
  std::istringstream names(options.policies);
  bool all = true;
  for (std::string name; std::getline(names, name, ',');) {
    FLOTILLA_TRY(const ReplayResult r, replay(trace, name, options));
    all = all && r.num_done == trace.size();
    if (options.json) {
      std::printf(
          "{\"policy\":\"%s\",\"arrivals\":%zu,\"done\":%zu,\"first_p50_s\":%.4f,\"first_p99_s\":"
          "%.4f,\"cached_share\":%.4f,\"computed_share\":%.4f,\"busiest\":%.3f}\n",
          name.c_str(), trace.size(), r.num_done, r.first_p50, r.first_p99, r.cached_share,
          r.computed_share, r.busiest);
    } else {
      std::printf("%-18s %7.3f s %7.3f s %6.1f %% %7.1f %% %8.2f\n", name.c_str(), r.first_p50,
                  r.first_p99, 100 * r.cached_share, 100 * r.computed_share, r.busiest);
    }
  }
  return all && !trace.empty();
}

}  // namespace flotilla::bench
