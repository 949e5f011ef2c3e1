#include "load.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::bench {
namespace {

using Time = std::chrono::steady_clock;

double seconds(Time::duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Request {
  std::shared_ptr<engine::PreparedJob> job;
  std::int64_t cancel_after = -1;  // tokens; -1: never. 0: as soon as it is submitted
};

struct Answer {
  std::vector<TokenId> ids = {};
  std::vector<Time::time_point> arrivals = {};  // of each token
  Time::time_point submitted = {};
  std::optional<engine::Finish> finish = {};
  std::string error = {};
};

std::vector<Request> make_requests(const LoadOptions& options, std::int64_t vocab_size,
                                   std::int64_t context) {
  backend::FixedRandom random(options.seed);
  const auto unit = [&] { return static_cast<double>(random.next() >> 11) * 0x1p-53; };
  std::vector<Request> requests;
  const int count = options.num_clients * options.requests_per_client;
  for (int i = 0; i < count; ++i) {
    Request request{.job = std::make_shared<engine::PreparedJob>()};
    const double spread =
        static_cast<double>(options.max_prompt) / static_cast<double>(options.min_prompt);
    auto length = static_cast<std::int64_t>(static_cast<double>(options.min_prompt) *
                                            std::pow(spread, unit()));
    const std::int64_t output =
        options.min_output +
        static_cast<std::int64_t>(unit() *
                                  static_cast<double>(options.max_output - options.min_output));
    length = std::min(length, context - output - 1);
    for (std::int64_t t = 0; t < length; ++t) {
      request.job->prompt_ids.push_back(
          static_cast<TokenId>(random.below(static_cast<std::uint32_t>(vocab_size))));
    }
    engine::ChatJob& job = request.job->job;
    job.max_tokens = output;
    job.ignore_eos = true;
    job.sampling.temperature = i % 2 == 0 ? 0.0 : 0.8;
    job.sampling.seed = random.next();
    if (static_cast<int>(random.below(100)) < options.cancel_percent) {
      request.cancel_after = static_cast<std::int64_t>(unit() * static_cast<double>(output) * 0.8);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Submits and waits for the end.
Answer ask(engine::TextEngine& engine, const Request& request, bool may_cancel) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Answer answer;
  };
  const auto shared = std::make_shared<Shared>();
  shared->answer.submitted = Time::now();
  const auto submitted = engine.submit(request.job, [shared](engine::TokenEvent event) {
    const auto now = Time::now();
    std::lock_guard lock(shared->mutex);
    Answer& answer = shared->answer;
    answer.ids.insert(answer.ids.end(), event.ids.begin(), event.ids.end());
    answer.arrivals.resize(answer.ids.size(), now);
    if (event.finish) answer.finish = event.finish;
    shared->changed.notify_all();
    return true;
  });
  if (!submitted.ok()) return Answer{.error = submitted.error().message};
  std::unique_lock lock(shared->mutex);
  if (may_cancel && request.cancel_after >= 0) {
    shared->changed.wait(lock, [&] {
      return shared->answer.finish.has_value() ||
             static_cast<std::int64_t>(shared->answer.ids.size()) >= request.cancel_after;
    });
    lock.unlock();
    engine.cancel(*submitted);
    lock.lock();
  }
  shared->changed.wait(lock, [&] { return shared->answer.finish.has_value(); });
  Answer answer = shared->answer;
  if (answer.finish->error) answer.error = answer.finish->error->message;
  return answer;
}

// The last events reach clients a moment before the engine's own books.
engine::EngineStats settled_stats(engine::TextEngine& engine) {
  const auto end = Time::now() + std::chrono::seconds(5);
  for (;;) {
    const engine::EngineStats stats = engine.stats();
    if ((stats.num_running == 0 && stats.num_waiting == 0) || Time::now() > end) return stats;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Percentiles percentiles(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(samples.size()));
    return samples[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  return {at(0.50), at(0.95), at(0.99), samples.back()};
}

LoadResult run_load(engine::TextEngine& engine, const LoadOptions& options) {
  const std::vector<Request> requests =
      make_requests(options, engine.info().vocab_size, engine.info().context_length);
  std::vector<Answer> mixed(requests.size());
  const auto begin = Time::now();
  {
    std::vector<std::thread> clients;
    for (int c = 0; c < options.num_clients; ++c) {
      clients.emplace_back([&, c] {
        if (options.wave_size > 0) {
          std::this_thread::sleep_for(
              std::chrono::milliseconds(c / options.wave_size * options.wave_ms));
        }
        for (int r = 0; r < options.requests_per_client; ++r) {
          const auto i = static_cast<std::size_t>(r * options.num_clients + c);
          mixed[i] = ask(engine, requests[i], true);
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  LoadResult result{.num_requests = static_cast<std::int64_t>(requests.size())};
  result.wall_s = seconds(Time::now() - begin);
  const engine::EngineStats stats = settled_stats(engine);
  result.left_requests = stats.num_running + stats.num_waiting;
  result.left_bytes = stats.kv_bytes_used;

  std::vector<double> first, first_of_short, gaps;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Answer& answer = mixed[i];
    const auto num_prompt = static_cast<std::int64_t>(requests[i].job->prompt_ids.size());
    if (!answer.error.empty()) result.errors.push_back(answer.error);
    if (!answer.arrivals.empty()) {
      first.push_back(seconds(answer.arrivals.front() - answer.submitted));
      if (num_prompt <= 64) first_of_short.push_back(first.back());
    }
    for (std::size_t t = 1; t < answer.arrivals.size(); ++t) {
      gaps.push_back(seconds(answer.arrivals[t] - answer.arrivals[t - 1]));
    }
    if (!answer.error.empty()) continue;
    if (answer.finish->reason == engine::FinishReason::kCancelled) {
      ++result.num_cancelled;
      continue;
    }
    ++result.num_finished;
    result.prompt_tokens += num_prompt;
    result.output_tokens += static_cast<std::int64_t>(answer.ids.size());
    // The prompts are all different: a prefix cache does not shorten the solo runs, provided that
    // each has a tenant of its own.
    Request alone{.job = std::make_shared<engine::PreparedJob>(*requests[i].job)};
    alone.job->job.tenant = "solo " + std::to_string(i);
    const Answer solo = ask(engine, alone, false);
    if (solo.arrivals.empty() || solo.ids != answer.ids) {
      ++result.num_different;
      continue;
    }
    result.solo_s += seconds(solo.arrivals.back() - solo.submitted);
    result.solo_worst_first_token_s =
        std::max(result.solo_worst_first_token_s, seconds(solo.arrivals.front() - solo.submitted));
  }
  result.first_token_s = percentiles(std::move(first));
  result.first_token_of_short_s = percentiles(std::move(first_of_short));
  result.gap_s = percentiles(std::move(gaps));
  return result;
}

}  // namespace flotilla::bench
