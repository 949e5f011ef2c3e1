#include "shrink.h"

#include <algorithm>
#include <utility>

namespace flotilla::schedules {
namespace {

// Candidates that differ from what they come from by one simplification.
class Proposals {
 public:
  explicit Proposals(const Schedule& from) : from_(from), from_text_(to_text(from)) {}

  void without(std::size_t first, std::size_t count) {
    Schedule s = from_;
    const auto begin = s.arrivals.begin() + static_cast<std::ptrdiff_t>(first);
    s.arrivals.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
    out_.push_back(std::move(s));
  }
  template <typename T>
  void set(T Schedule::*member, std::type_identity_t<T> value) {
    Schedule s = from_;
    s.*member = std::move(value);
    add(std::move(s));
  }
  template <typename T>
  void set(std::size_t i, T Arrival::*member, std::type_identity_t<T> value) {
    Schedule s = from_;
    s.arrivals[i].*member = std::move(value);
    add(std::move(s));
  }
  template <typename T>
  void set_request(std::size_t i, T RequestSpec::*member, std::type_identity_t<T> value) {
    Schedule s = from_;
    s.arrivals[i].request.*member = std::move(value);
    add(std::move(s));
  }
  // Half of it, three quarters, one less.
  void smaller(std::size_t i, std::int64_t RequestSpec::*member, std::int64_t least) {
    const std::int64_t now = from_.arrivals[i].request.*member;
    if (now <= least) return;
    set_request(i, member, std::max(least, now / 2));
    if (now > 8) set_request(i, member, now - now / 4);
    if (now > 2) set_request(i, member, now - 1);
  }
  void add(Schedule s) {
    std::string text = to_text(s);
    if (text != from_text_) out_.push_back(std::move(s));
  }
  std::vector<Schedule> take() { return std::move(out_); }

 private:
  const Schedule& from_;
  const std::string from_text_;
  std::vector<Schedule> out_;
};

void propose_requests(Proposals& p, const Schedule& s) {
  const std::size_t count = s.arrivals.size();
  if (count >= 4) {
    p.without(0, count / 2);
    p.without(count / 2, count - count / 2);
  }
  for (std::size_t i = 0; count > 1 && i < count; ++i) p.without(i, 1);
}

void propose_sizes(Proposals& p) {
  p.set(&Schedule::variant, 0);
  p.set(&Schedule::failing_step, -1);
  p.set(&Schedule::evict_every, 0);
  p.set(&Schedule::checkpoint_interval, 4096);
  p.set(&Schedule::prefix_cache_percent, 0);
  p.set(&Schedule::force_preemption_every, 0);
  p.set(&Schedule::spare_memory_percent, 1000);
  p.set(&Schedule::max_bypass, 64);
  p.set(&Schedule::max_sequences, 32);
  p.set(&Schedule::max_batch_tokens, 1000);
  p.set(&Schedule::prefill_chunk, 500);
}

void propose_arrival(Proposals& p, const Schedule& s, std::size_t i) {
  p.set(i, &Arrival::fault, Fault::kNone);
  p.set(i, &Arrival::cancel_step, -1);
  p.set(i, &Arrival::pause_every, 0);
  p.set(i, &Arrival::resume_at, -1);
  p.set(i, &Arrival::tenant, "");
  p.set(i, &Arrival::step, 0);
  const RequestSpec& request = s.arrivals[i].request;
  p.set_request(i, &RequestSpec::sampling, sampling::SamplingParams{.temperature = 0});
  if (!request.sampling.logit_bias.empty()) {
    sampling::SamplingParams plain = request.sampling;
    plain.logit_bias.clear();
    p.set_request(i, &RequestSpec::sampling, std::move(plain));
  }
  p.set_request(i, &RequestSpec::stop_token_ids, {});
  p.set_request(i, &RequestSpec::stop, "");
  p.set_request(i, &RequestSpec::top_logprobs, -1);
  p.set_request(i, &RequestSpec::min_tokens, 0);
  p.set_request(i, &RequestSpec::ignore_eos, true);
  if (request.prefix_tokens > 0) {
    Schedule whole = s;
    whole.arrivals[i].request.tail_tokens += request.prefix_tokens;
    whole.arrivals[i].request.prefix_tokens = 0;
    p.add(std::move(whole));
  }
  p.smaller(i, &RequestSpec::max_tokens, 1);
  p.smaller(i, &RequestSpec::tail_tokens, 1);
  p.smaller(i, &RequestSpec::prefix_tokens, 0);
}

}  // namespace

void Shrinker::propose() {
  Proposals p(best_);
  propose_requests(p, best_);
  propose_sizes(p);
  for (std::size_t i = 0; i < best_.arrivals.size(); ++i) propose_arrival(p, best_, i);
  candidates_ = p.take();
}

std::optional<Schedule> Shrinker::next() {
  if (failures_ >= candidates_.size()) return std::nullopt;
  return candidates_[at_];
}

// Whatever fails becomes the new best. Each acceptance removes something, so this ends: when all
// proposals for one best were tried.
void Shrinker::report(bool fails) {
  if (fails) {
    best_ = std::move(candidates_[at_]);
    propose();
    failures_ = 0;
    if (at_ >= candidates_.size()) at_ = 0;
  } else {
    ++failures_;
    at_ = (at_ + 1) % candidates_.size();
  }
}

}  // namespace flotilla::schedules
