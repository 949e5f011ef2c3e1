// flotilla-schedule-check: random schedules of the real engine against solo runs, to the bit. See
// docs/contributing.md.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "checker.h"

namespace flotilla::schedules {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::uint64_t seed = 1;
  std::uint64_t first = 0;
  std::uint64_t schedules = 100;
  std::vector<int> threads{1, 2};
  std::optional<int> cuda;
  int jobs = 2;
  std::int64_t longest_prompt = 1500;
  bool broken = false;
  bool print = false;
  std::string replay;
};

constexpr int kBrokenRows = 3;
constexpr int kShrinkTries = 600;

// What this thread plays, for the message when a check inside the engine aborts.
thread_local const char* current_play = nullptr;

void on_abort(int) {
  const auto write_text = [](const char* text) {
    [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text, std::strlen(text));
  };
  write_text("aborted in: ");
  write_text(current_play != nullptr ? current_play : "no schedule");
  write_text("\n");
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

struct Failure {
  std::uint64_t index = 0;
  Schedule schedule;
  std::string problem;
};

// Workers take schedules by number until one fails.
struct Run {
  const Options& options;
  const checkpoint::Checkpoint& checkpoint;
  Limits limits;
  std::vector<Variant> variants;
  SoloRuns solos = {};
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex = {};
  Coverage coverage = {};           // guarded by mutex
  std::optional<Failure> failure;   // guarded by mutex; the lowest index
  std::optional<Error> error = {};  // guarded by mutex
};

void work(Run& run) {
  Checker checker(run.checkpoint, run.variants, run.options.broken ? kBrokenRows : 0, run.solos);
  Coverage coverage;
  while (!run.stop) {
    const std::uint64_t index = run.options.first + run.next++;
    if (index >= run.options.first + run.options.schedules) break;
    const Schedule schedule = make_schedule(run.options.seed, index, run.limits);
    const std::string text = "schedule " + std::to_string(index) + ": " + to_text(schedule);
    if (run.options.print) std::printf("%s\n", text.c_str());
    current_play = text.c_str();
    const Result<std::string> problem = checker.check(schedule, coverage);
    current_play = nullptr;
    if (const std::uint64_t done = index - run.options.first + 1; done % 250 == 0) {
      std::printf("  %llu schedules\n", static_cast<unsigned long long>(done));
      std::fflush(stdout);
    }
    if (problem.ok() && problem->empty()) continue;
    run.stop = true;
    std::lock_guard lock(run.mutex);
    if (!problem.ok()) {
      run.error = problem.error();
    } else if (!run.failure || index < run.failure->index) {
      run.failure = Failure{index, schedule, *problem};
    }
  }
  std::lock_guard lock(run.mutex);
  run.coverage.add(coverage);
}

void print_coverage(const Run& run, double seconds, std::uint64_t done) {
  const Coverage& c = run.coverage;
  const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "  %llu schedules in %.1f s: %llu requests (%zu different), %llu steps, %llu rows, %llu "
      "tokens; %llu positions compared\n"
      "  %llu preemptions, %llu pauses, %llu cancellations, %llu resumes, %llu faults, %llu tokens "
      "from the prefix cache, %llu evictions\n",
      number(done), seconds, number(c.requests), run.solos.size(), number(c.steps), number(c.rows),
      number(c.tokens), number(c.positions), number(c.preemptions), number(c.pauses),
      number(c.cancels), number(c.resumes), number(c.faults), number(c.cached_tokens),
      number(c.evictions));
}

Status report_failure(Run& run, const Failure& failure) {
  std::printf("  DIFFERENCE in schedule %llu of seed %llu (%s): %s\n",
              static_cast<unsigned long long>(failure.index),
              static_cast<unsigned long long>(run.options.seed),
              to_text(run.variants[failure.schedule.variant % run.variants.size()]).c_str(),
              failure.problem.c_str());
  Checker checker(run.checkpoint, run.variants, run.options.broken ? kBrokenRows : 0, run.solos);
  Coverage ignored;
  FLOTILLA_TRY(const std::string again, checker.check(failure.schedule, ignored));
  if (again.empty()) {
    std::printf("  played again it is right: the machine or the kernels drift\n  %s\n",
                to_text(failure.schedule).c_str());
    return ok_status();
  }
  FLOTILLA_TRY(const Schedule small, checker.shrink(failure.schedule, kShrinkTries));
  FLOTILLA_TRY(const std::string problem, checker.check(small, ignored));
  std::printf("  smallest that still fails, %zu request(s), %s\n  replay: %s--replay '%s'\n",
              small.arrivals.size(), problem.c_str(), run.options.broken ? "--broken " : "",
              to_text(small).c_str());
  return ok_status();
}

// True when what was found is what was asked for: nothing, or with --broken something.
Result<bool> check_folder(const Options& options, const std::string& folder) {
  FLOTILLA_TRY(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  Run run{
      .options = options, .checkpoint = checkpoint, .limits = {}, .variants = {}, .failure = {}};
  run.variants = options.cuda ? std::vector<Variant>{{.cuda_device = options.cuda}}
                              : variants_here(options.threads);
  std::printf("%s, seed %llu\n", folder.c_str(), static_cast<unsigned long long>(options.seed));
  {
    FLOTILLA_TRY(const Machine machine, make_machine(checkpoint, run.variants[0], 0));
    const models::ModelInfo& info = machine.model->info();
    run.limits = {.vocab_size = info.vocab_size,
                  .context_length = info.context_length,
                  .num_variants = run.variants.size(),
                  .num_light = options.cuda ? 1 : run.variants.size() / options.threads.size(),
                  .longest_prompt = options.longest_prompt,
                  .num_requests = std::max<std::uint64_t>(40, options.schedules / 4)};
  }
  const auto begin = std::chrono::steady_clock::now();
  if (!options.replay.empty()) {
    Checker checker(checkpoint, run.variants, options.broken ? kBrokenRows : 0, run.solos);
    FLOTILLA_TRY(const Schedule schedule, schedule_from_text(options.replay));
    current_play = options.replay.c_str();
    FLOTILLA_TRY(const std::string problem, checker.check(schedule, run.coverage));
    std::printf("  %s\n", problem.empty() ? "no difference" : problem.c_str());
    return problem.empty() != options.broken;
  }
  std::vector<std::thread> workers;
  for (int i = 0; i < options.jobs; ++i) workers.emplace_back([&run] { work(run); });
  for (std::thread& worker : workers) worker.join();
  if (run.error) return *run.error;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_coverage(run, seconds, std::min(run.next.load(), options.schedules));
  if (run.failure) FLOTILLA_TRY_STATUS(report_failure(run, *run.failure));
  if (!run.failure) std::printf("  no difference\n");
  return run.failure.has_value() == options.broken;
}

int main_with(const Options& options) {
  std::signal(SIGABRT, on_abort);
  bool good = true;
  for (const std::string& folder : options.folders) {
    const Result<bool> outcome = check_folder(options, folder);
    if (!outcome.ok()) std::fprintf(stderr, "error: %s\n", outcome.error().message.c_str());
    good = good && outcome.ok() && *outcome;
    std::fflush(stdout);
  }
  if (!good && options.broken) std::fprintf(stderr, "the broken kernel was not caught\n");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace flotilla::schedules

int main(int argc, char** argv) {
  using namespace flotilla;
  schedules::Options options;
  CLI::App app(
      "Plays random schedules on model folders and compares the logits of every generated position "
      "with the solo run of the same request. Exit status: 0 no difference, 1 a difference");
  app.add_option("folders", options.folders, "Model folders; a tokenizer is not needed")
      ->required();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--first", options.first, "Number of the first schedule")->capture_default_str();
  app.add_option("--schedules", options.schedules, "How many, per folder")->capture_default_str();
  app.add_option("--threads", options.threads, "Thread counts to choose from")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--cuda", options.cuda, "Number of a card that plays in the place of the CPU");
  app.add_option("--jobs", options.jobs, "Schedules played at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--longest-prompt", options.longest_prompt, "Tokens of the rare long prompts")
      ->check(CLI::Range(500, 1 << 20))
      ->capture_default_str();
  app.add_flag("--broken", options.broken,
               "Use kernels that break the contract; exit status 0 when that is found");
  app.add_flag("--print", options.print, "Print every schedule");
  app.add_option("--replay", options.replay, "Play one schedule in the form printed by a failure");
  CLI11_PARSE(app, argc, argv);
  return schedules::main_with(options);
}
