// A device fault in the middle of an answer: its request fails with a typed error, the engine is
// loaded again, and answers as before.
#include <chrono>
#include <future>
#include <thread>

#include "check_util.h"
#include "checks.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/engine/model_engine.h"
#include "flotilla/worker/worker_process.h"

namespace flotilla::cuda_check {
namespace {

struct Outcome {
  std::vector<TokenId> ids;
  engine::Finish finish;
};

Result<std::future<Outcome>> ask(engine::TextEngine& engine, std::int64_t tokens) {
  engine::ChatJob job;
  job.raw_prompt = "Once upon a time";
  job.max_tokens = tokens;
  job.ignore_eos = true;
  job.sampling.temperature = 0;
  FLOTILLA_TRY(auto prepared, engine.prepare(std::move(job)));
  struct Shared {
    Outcome outcome;
    std::promise<Outcome> done;
  };
  auto shared = std::make_shared<Shared>();
  auto future = shared->done.get_future();
  FLOTILLA_TRY(const RequestId id, engine.submit(prepared, [shared](engine::TokenEvent event) {
    auto& ids = shared->outcome.ids;
    ids.insert(ids.end(), event.ids.begin(), event.ids.end());
    if (event.finish) {
      shared->outcome.finish = *event.finish;
      shared->done.set_value(shared->outcome);
    }
    return true;
  }));
  (void)id;
  return future;
}

Status run(const std::string& source, Report& report) {
  engine::ModelEngineOptions options;
  options.folder = source + "/models/flotilla-tiny";
  options.cuda_device = 0;
  options.kv_bytes = std::uint64_t{256} << 20;
  constexpr std::int64_t kTokens = 200;
  backend::cuda::release_cuda_device(0);
  // In the middle of the second and third answers, which run side by side.
  FLOTILLA_TRY(const auto engine,
               worker::load_in_worker(options, {.arguments = {"engine-worker"},
                                                .fault_at_step = kTokens + kTokens / 2}));
  FLOTILLA_TRY(auto first, ask(*engine, kTokens));
  const Outcome good = first.get();
  report.expect("an answer before the fault", good.ids.size() == kTokens);

  FLOTILLA_TRY(auto one, ask(*engine, kTokens));
  FLOTILLA_TRY(auto two, ask(*engine, kTokens));
  for (auto* future : {&one, &two}) {
    const Outcome lost = future->get();
    report.expect("a request in the fault has an error", lost.finish.error.has_value());
    if (lost.finish.error) {
      std::printf("  failed after %zu tokens: %s\n", lost.ids.size(),
                  lost.finish.error->message.c_str());
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto wait_until = [&](bool healthy) {
    while (engine->healthy() != healthy && waited() < 60)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  wait_until(false);  // requests hear of the fault a moment before
  wait_until(true);
  std::printf("  healthy again after %.2f s\n", waited());
  report.expect("the engine comes back", engine->healthy());
  FLOTILLA_TRY(auto again, ask(*engine, kTokens));
  report.expect("the same answer afterwards", again.get().ids == good.ids);
  return ok_status();
}

}  // namespace

int check_recovery(const std::string& source) {
  std::printf("a fault of the device\n");
  Report report;
  if (const Status status = run(source, report); !status.ok()) {
    std::printf("  FAILED: %s\n", status.error().message.c_str());
    return report.failures() + 1;
  }
  return report.failures();
}

}  // namespace flotilla::cuda_check
