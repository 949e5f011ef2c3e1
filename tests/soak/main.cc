// flotilla-soak: does the memory of the process stay flat over many loads and unloads of a model,
// and over many requests? Resident memory is printed at the quarter points; growth after the first
// quarter is a leak, and so is what an unloaded model leaves.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/engine/model_engine.h"

namespace flotilla::soak {
namespace {

struct Options {
  engine::ModelEngineOptions model;
  int cycles = 1000;
  int requests = 10000;
  int concurrent = 16;
  double tolerance_mib = 3;
};

double resident_mib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

// Counts requests that are under way.
class Gate {
 public:
  void enter(int limit) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ < limit; });
    ++inside_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  void wait_empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;  // guarded by mutex_
};

// Requests of many kinds: lengths, sampling, tenants; every tenth is cancelled.
Status submit(engine::TextEngine& engine, int number, Gate& gate, int concurrent) {
  backend::FixedRandom random(static_cast<std::uint64_t>(number) + 1);
  auto job = std::make_shared<engine::PreparedJob>();
  const std::uint32_t length = number % 50 == 0 ? 400 + random.below(400) : 2 + random.below(60);
  for (std::uint32_t i = 0; i < length; ++i) {
    job->prompt_ids.push_back(
        static_cast<TokenId>(random.below(static_cast<std::uint32_t>(engine.info().vocab_size))));
  }
  job->job.max_tokens = 1 + random.below(12);
  job->job.tenant = "tenant " + std::to_string(random.below(5));
  job->job.sampling.temperature = number % 2;
  job->job.sampling.seed = random.next();
  if (number % 3 == 0) job->job.sampling.repetition_penalty = 1.1;
  if (number % 4 == 0) job->job.top_logprobs = 3;
  gate.enter(concurrent);
  const auto id = engine.submit(std::move(job), [&gate](engine::TokenEvent event) {
    if (event.finish) gate.leave();
    return true;
  });
  if (!id.ok()) {
    gate.leave();
    return id.error();
  }
  if (number % 10 == 0) engine.cancel(*id);
  return ok_status();
}

Status run_requests(engine::TextEngine& engine, int first, int count, int concurrent) {
  Gate gate;
  Status status = ok_status();
  for (int i = 0; i < count && status.ok(); ++i)
    status = submit(engine, first + i, gate, concurrent);
  gate.wait_empty();
  return status;
}

// Calls step(i) `count` times. True when memory is flat from the first quarter on.
template <class Step>
Result<bool> watch(const char* what, int count, double tolerance, Step&& step) {
  std::vector<double> quarters;
  std::printf("%s, MiB resident: start %.1f", what, resident_mib());
  for (int i = 0; i < count; ++i) {
    FLOTILLA_TRY_STATUS(step(i));
    if ((i + 1) * 4 / count == i * 4 / count) continue;
    quarters.push_back(resident_mib());
    std::printf("; after %d %.1f", i + 1, quarters.back());
    std::fflush(stdout);
  }
  const double growth = quarters.back() - quarters.front();
  const bool flat = growth <= tolerance;
  std::printf("; %+.1f since the first quarter: %s\n", growth, flat ? "flat" : "NOT FLAT");
  return flat;
}

Result<bool> soak(const Options& options) {
  bool flat = true;
  const auto cycle = [&](int i) -> Status {
    FLOTILLA_TRY(const auto engine, engine::load_model_engine(options.model));
    return run_requests(*engine, i * 3, 3, options.concurrent);
  };
  if (options.cycles > 0) {
    FLOTILLA_TRY(const bool good,
                 watch("load and unload", options.cycles, options.tolerance_mib, cycle));
    flat = flat && good;
  }
  if (options.requests > 0) {
    if (options.cycles == 0) FLOTILLA_TRY_STATUS(cycle(0));  // what the first load takes for good
    const double before = resident_mib();
    FLOTILLA_TRY(auto engine, engine::load_model_engine(options.model));
    const int batch = std::max(1, options.requests / 100);
    const auto requests = [&](int i) {
      return run_requests(*engine, i * batch, batch, options.concurrent);
    };
    FLOTILLA_TRY(const bool good, watch(("requests in batches of " + std::to_string(batch)).c_str(),
                                        options.requests / batch, options.tolerance_mib, requests));
    const double loaded = resident_mib();
    engine.reset();
    const double left = resident_mib() - before;
    const bool returned = left <= options.tolerance_mib;
    std::printf("unload: %.1f MiB with the model, %+.1f after it beside what was before: %s\n",
                loaded, left, returned ? "returned" : "NOT RETURNED");
    flat = flat && good && returned;
  }
  return flat;
}

}  // namespace
}  // namespace flotilla::soak

int main(int argc, char** argv) {
  flotilla::soak::Options options;
  std::uint64_t kv_mib = 64;
  CLI::App app("Watches resident memory over load/unload cycles and over requests");
  app.add_option("model", options.model.folder, "Model folder")->required();
  app.add_option("--cycles", options.cycles)->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--requests", options.requests)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--concurrent", options.concurrent)
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--threads", options.model.num_threads, "0: one per core")
      ->check(CLI::Range(0, 1024));
  app.add_option("--kv-mib", kv_mib, "Memory for keys and values")->capture_default_str();
  app.add_option("--tolerance-mib", options.tolerance_mib,
                 "Growth after the first quarter that is not a leak")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.model.kv_bytes = kv_mib << 20;
  const auto flat = flotilla::soak::soak(options);
  if (!flat.ok()) {
    std::fprintf(stderr, "error: %s\n", flat.error().message.c_str());
    return 1;
  }
  return *flat ? 0 : 1;
}
