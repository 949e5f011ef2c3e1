#include "schedule.h"

#include <algorithm>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::schedules {
namespace {

using backend::FixedRandom;

constexpr std::uint64_t kNumPrefixes = 5;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return FixedRandom(FixedRandom(a).next() ^ (b * 0x9e3779b97f4a7c15u)).next();
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(random_.below(static_cast<std::uint32_t>(high - low + 1)));
  }
  bool percent(int chance) { return between(0, 99) < chance; }
  std::uint64_t any() { return random_.next(); }
  std::uint64_t below(std::uint64_t limit) {
    return static_cast<std::uint64_t>(between(0, static_cast<std::int64_t>(limit) - 1));
  }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<std::int64_t>(values.size()) - 1));
  }

 private:
  FixedRandom random_;
};

std::int64_t prompt_length(Dice& dice, const Limits& limits) {
  const std::int64_t kind = dice.between(0, 99);
  if (kind < 55) return dice.between(1, 40);
  if (kind < 80) return dice.one_of<std::int64_t>({31, 32, 33, 63, 64, 65, 95, 96, 97});
  if (kind < 96) return dice.between(41, 200);
  if (kind < 99) return dice.between(200, 500);
  return dice.between(500, limits.longest_prompt);
}

sampling::SamplingParams make_sampling(Dice& dice, const Limits& limits) {
  sampling::SamplingParams params{.temperature = 0};
  params.seed = dice.any();
  if (dice.percent(65)) {
    params.temperature = dice.one_of({0.3, 0.8, 1.0, 1.7});
    params.top_k = dice.one_of({0, 0, 5, 64});
    params.top_p = dice.one_of({1.0, 1.0, 0.95, 0.5});
    params.min_p = dice.one_of({0.0, 0.0, 0.05});
    params.choice = static_cast<std::uint32_t>(dice.between(0, 3));
  }
  if (dice.percent(25)) params.repetition_penalty = dice.one_of({0.8, 1.1, 1.5});
  if (dice.percent(20)) params.presence_penalty = dice.one_of({-0.5, 0.7, 2.0});
  if (dice.percent(20)) params.frequency_penalty = dice.one_of({-0.2, 0.4, 1.5});
  if (dice.percent(15)) {
    for (std::int64_t n = dice.between(1, 4); n > 0; --n) {
      params.logit_bias.emplace_back(static_cast<TokenId>(dice.between(0, limits.vocab_size - 1)),
                                     dice.one_of({-100.0, -2.5, 3.0}));
    }
  }
  return params;
}

RequestSpec make_request(std::uint64_t seed, const Limits& limits) {
  Dice dice(seed);
  RequestSpec request;
  const std::int64_t room = limits.context_length - 4;
  const std::int64_t length = std::min(prompt_length(dice, limits), room / 2);
  request.prefix = dice.below(kNumPrefixes);
  // Shared wholly, in part, or not at all.
  if (dice.percent(60)) request.prefix_tokens = dice.between(0, length - 1);
  request.tail = dice.any() >> 32;
  request.tail_tokens = length - request.prefix_tokens;
  request.max_tokens = dice.percent(6) ? dice.between(40, 160) : dice.between(1, 20);
  request.max_tokens = std::min(request.max_tokens, room - length);
  request.ignore_eos = dice.percent(70);
  if (dice.percent(15)) request.min_tokens = dice.between(1, request.max_tokens);
  if (dice.percent(15)) request.top_logprobs = static_cast<int>(dice.between(0, 5));
  if (dice.percent(15)) {
    for (std::int64_t n = limits.vocab_size / 16; n > 0; --n) {
      request.stop_token_ids.push_back(
          static_cast<TokenId>(dice.between(0, limits.vocab_size - 1)));
      if (request.stop_token_ids.size() == 24) break;
    }
  }
  if (dice.percent(10))
    request.stop = std::to_string(dice.between(0, 9)) + " " + std::to_string(dice.between(1, 9));
  request.sampling = make_sampling(dice, limits);
  return request;
}

Arrival make_arrival(Dice& dice, std::uint64_t seed, const Limits& limits, bool& has_long) {
  Arrival arrival;
  do {
    arrival.request = make_request(mixed(seed, dice.below(limits.num_requests)), limits);
  } while (has_long && arrival.request.num_prompt() > 500);
  has_long = has_long || arrival.request.num_prompt() > 500;
  arrival.step = dice.percent(50) ? 0 : dice.between(1, 24);
  arrival.tenant = dice.one_of({"", "a", "b"});
  if (dice.percent(20)) arrival.resume_at = dice.between(0, arrival.request.max_tokens);
  if (dice.percent(15)) arrival.cancel_step = arrival.step + dice.between(0, 20);
  if (dice.percent(20)) {
    arrival.pause_every = dice.between(1, 5);
    arrival.pause_steps = dice.between(1, 12);
  }
  if (dice.percent(6)) {
    arrival.fault = dice.one_of({Fault::kNan, Fault::kOutputThrow, Fault::kSinkThrow});
    arrival.fault_at = dice.between(0, std::min<std::int64_t>(arrival.request.max_tokens - 1, 12));
  }
  return arrival;
}

}  // namespace

Schedule make_schedule(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  Dice dice(mixed(seed ^ 0x5eed, index));
  Schedule schedule;
  // Several threads on small products mostly wait for each other.
  schedule.variant = dice.below(dice.percent(80) ? limits.num_light : limits.num_variants);
  schedule.prefill_chunk = dice.one_of<std::int64_t>({1, 3, 7, 16, 31, 32, 33, 64, 128, 500});
  schedule.max_batch_tokens = dice.one_of<std::int64_t>({1, 2, 5, 17, 32, 48, 64, 100, 256, 1000});
  schedule.max_sequences = dice.one_of<std::int64_t>({1, 2, 3, 5, 8, 32});
  schedule.max_bypass = dice.one_of<std::int64_t>({0, 1, 64});
  if (dice.percent(40)) schedule.force_preemption_every = dice.between(2, 12);
  schedule.spare_memory_percent = dice.one_of<std::int64_t>({0, 5, 20, 50, 150, 1000});
  if (dice.percent(70)) {
    schedule.prefix_cache_percent = dice.one_of<std::int64_t>({10, 50, 100});
    if (dice.percent(40)) schedule.evict_every = dice.between(1, 8);
    schedule.checkpoint_interval = dice.one_of<std::int64_t>({1, 20, 32, 50, 4096});
  }
  if (dice.percent(4)) schedule.failing_step = dice.between(0, 20);
  bool has_long = false;
  const std::int64_t count = dice.percent(70) ? dice.between(2, 6) : dice.between(7, 12);
  for (std::int64_t i = 0; i < count; ++i) {
    schedule.arrivals.push_back(make_arrival(dice, seed, limits, has_long));
    if (i == 0 || !dice.percent(35)) continue;
    // The same once more, when the first may have left something in a cache; or at the same time.
    Arrival& again = schedule.arrivals.back();
    const Arrival& first = schedule.arrivals[dice.below(static_cast<std::uint64_t>(i))];
    again.request = first.request;
    again.tenant = first.tenant;
    if (dice.percent(80)) again.step += first.step + dice.between(5, 40);
    if (again.cancel_step >= 0) again.cancel_step += again.step;
  }
  std::stable_sort(schedule.arrivals.begin(), schedule.arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.step < b.step; });
  // One token a step would take for ever with a long prompt.
  std::int64_t longest = 0;
  for (const Arrival& a : schedule.arrivals) longest = std::max(longest, a.request.num_prompt());
  const std::int64_t least = longest / 24;
  schedule.prefill_chunk = std::max(schedule.prefill_chunk, least);
  schedule.max_batch_tokens = std::max(schedule.max_batch_tokens, least);
  if (schedule.force_preemption_every > 0) {
    // Enough steps for the longest to be computed anew between two preemptions, beside others, or
    // the schedule would never end.
    std::int64_t most = 0;
    for (const Arrival& a : schedule.arrivals) {
      most = std::max(most, a.request.num_prompt() + a.request.max_tokens);
    }
    const std::int64_t tokens_a_step =
        std::max<std::int64_t>(1, std::min(schedule.prefill_chunk, schedule.max_batch_tokens) / 2);
    schedule.force_preemption_every =
        std::max(schedule.force_preemption_every, 2 * most / tokens_a_step + 2);
  }
  return schedule;
}

std::shared_ptr<engine::PreparedJob> make_job(const RequestSpec& request, std::int64_t vocab_size) {
  auto job = std::make_shared<engine::PreparedJob>();
  const auto limit = static_cast<std::uint32_t>(vocab_size);
  FixedRandom prefix(request.prefix + 77);
  for (std::int64_t i = 0; i < request.prefix_tokens; ++i) {
    job->prompt_ids.push_back(static_cast<TokenId>(prefix.below(limit)));
  }
  FixedRandom tail(request.tail + 7777);
  for (std::int64_t i = 0; i < request.tail_tokens; ++i) {
    job->prompt_ids.push_back(static_cast<TokenId>(tail.below(limit)));
  }
  engine::ChatJob& chat = job->job;
  chat.sampling = request.sampling;
  chat.max_tokens = request.max_tokens;
  chat.min_tokens = request.min_tokens;
  chat.ignore_eos = request.ignore_eos;
  chat.top_logprobs = request.top_logprobs;
  chat.stop_token_ids = request.stop_token_ids;
  if (!request.stop.empty()) chat.stop = {request.stop};
  return job;
}

}  // namespace flotilla::schedules
