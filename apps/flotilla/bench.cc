// flotilla bench: how fast a model runs here, beside the speed of the memory.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla/bench_model.h"
#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/model_argument.h"

namespace flotilla::apps {
namespace {

struct BenchCommand {
  BenchOptions bench;
  std::string model, models_dir = default_models_dir();
};

void print(const char* title, const Figure& f, const char* unit, double scale = 1,
           const char* format = "%-34s %9.1f %9.1f %9.1f  %s\n") {
  std::printf(format, title, f.median * scale, f.min * scale, f.max * scale, unit);
}

int bench(BenchCommand& options) {
  auto folder = resolve_model(options.model, options.models_dir);
  if (!folder.ok()) return report(folder.error());
  options.bench.folder = *folder;
  auto result = bench_model(options.bench);
  if (!result.ok()) return report(result.error());
  std::printf("%s: %.2f billion parameters, %s read per step; %s; %d rounds\n\n", folder->c_str(),
              static_cast<double>(result->num_parameters) / 1e9,
              format_bytes(static_cast<std::uint64_t>(result->weight_bytes)).c_str(),
              result->device.c_str(), options.bench.rounds);
  std::printf("%-34s %9s %9s %9s\n", "", "median", "min", "max");
  print("memory, read loop", result->read_loop, "GB/s");
  for (const DecodeResult& d : result->decode) {
    const std::string title = "decode, " + std::to_string(d.rows) +
                              (d.rows == 1 ? " row" : " rows") + ", depth " +
                              std::to_string(d.depth);
    if (!d.fits) {
      std::printf("%-34s does not fit: %s of state, room for %s\n", title.c_str(),
                  format_bytes(d.state_bytes).c_str(), format_bytes(result->state_room).c_str());
      continue;
    }
    print(title.c_str(), d.tokens_per_second, "tokens/s");
    print("", d.gigabytes_per_second, "GB/s");
    print("", d.share_of_read_loop, "% of the read loop in the same round", 100);
  }
  if (options.bench.prefill_tokens > 0) {
    for (const PrefillResult& p : result->prefill) {
      const std::string title =
          "prefill, " + std::to_string(p.tokens) + " tokens after " + std::to_string(p.depth);
      print(title.c_str(), p.tokens_per_second, "tokens/s");
    }
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BenchCommand>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure decode and prefill beside the memory's own speed");
  command->add_option("model", o->model, "Folder, or name in the models folder");
  command->add_option("--models-dir", o->models_dir, "Folder with models")
      ->envname("FLOTILLA_MODELS_DIR")
      ->capture_default_str();
  command->add_option("--threads", o->bench.threads, "0: one per core")
      ->envname("FLOTILLA_THREADS")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--pin-threads", o->bench.pin_threads, "Keep them on cores of their own")
      ->envname("FLOTILLA_PIN_THREADS");
  command->add_option("--device", o->bench.device, "auto, cpu, cuda or cuda:N")
      ->envname("FLOTILLA_DEVICE")
      ->capture_default_str();
  command->add_option("--rows", o->bench.rows, "Sequences decoded together")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--depth", o->bench.depths, "Tokens already in each sequence")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--prefill", o->bench.prefill_tokens, "Tokens to prefill (0: none)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--chunk", o->bench.prefill_chunk, "Tokens per prefill step (0: as suits)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rounds", o->bench.rounds)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", o->bench.seconds_per_sample, "Least time of one decode sample")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command->callback([o, &exit_code] { exit_code = bench(*o); });
}

}  // namespace flotilla::apps
