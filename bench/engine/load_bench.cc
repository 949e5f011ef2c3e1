// flotilla-bench-engine: a mixed load on one model. Decode and prefill alone: flotilla bench.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "flotilla/engine/model_engine.h"
#include "load.h"

namespace {

using flotilla::bench::LoadOptions;
using flotilla::bench::LoadResult;
using flotilla::bench::Percentiles;

void print(const char* title, const Percentiles& p) {
  std::printf("%-36s %9.1f %9.1f %9.1f %9.1f  ms\n", title, p.p50 * 1e3, p.p95 * 1e3, p.p99 * 1e3,
              p.max * 1e3);
}

// Exit status: leaks, failures and differences are errors; slowness is not.
int report(const LoadOptions& options, const LoadResult& r) {
  std::printf(
      "%lld requests of %d clients, prompts of %lld to %lld tokens: %lld finished, %lld "
      "cancelled, %zu failed\n\n",
      static_cast<long long>(r.num_requests), options.num_clients,
      static_cast<long long>(options.min_prompt), static_cast<long long>(options.max_prompt),
      static_cast<long long>(r.num_finished), static_cast<long long>(r.num_cancelled),
      r.errors.size());
  std::printf("%-36s %9s %9s %9s %9s\n", "", "p50", "p95", "p99", "worst");
  print("first token", r.first_token_s);
  print("first token, prompts up to 64", r.first_token_of_short_s);
  print("between tokens", r.gap_s);
  std::printf(
      "\nmixed: %.2f s; the finished requests one at a time: %.2f s (worst first token "
      "%.1f ms)\n",
      r.wall_s, r.solo_s, r.solo_worst_first_token_s * 1e3);
  std::printf("throughput: %.0f prompt and %.0f generated tokens/s, %.2f times the solo runs\n",
              static_cast<double>(r.prompt_tokens) / r.wall_s,
              static_cast<double>(r.output_tokens) / r.wall_s, r.solo_s / r.wall_s);
  std::printf(
      "answers that differ from their solo run: %lld; left: %u requests, %llu bytes of "
      "pages\n",
      static_cast<long long>(r.num_different), r.left_requests,
      static_cast<unsigned long long>(r.left_bytes));
  for (const std::string& error : r.errors) std::printf("FAILED: %s\n", error.c_str());
  return r.errors.empty() && r.num_different == 0 && r.left_requests == 0 && r.left_bytes == 0 ? 0
                                                                                               : 1;
}

}  // namespace

int main(int argc, char** argv) {
  LoadOptions options;
  flotilla::engine::ModelEngineOptions model;
  std::uint64_t kv_mib = 0;
  CLI::App app("Mixed load on one model: first token, gaps, throughput, leaks, equal answers");
  app.add_option("model", model.folder, "Model folder")->required();
  app.add_option("--clients", options.num_clients)->check(CLI::Range(1, 1024));
  app.add_option("--requests", options.requests_per_client, "Of each client, one after another")
      ->check(CLI::Range(1, 100000));
  app.add_option("--min-prompt", options.min_prompt)->check(CLI::PositiveNumber);
  app.add_option("--max-prompt", options.max_prompt)->check(CLI::PositiveNumber);
  app.add_option("--min-output", options.min_output)->check(CLI::PositiveNumber);
  app.add_option("--max-output", options.max_output)->check(CLI::PositiveNumber);
  app.add_option("--cancel", options.cancel_percent, "Percent of requests that hang up")
      ->check(CLI::Range(0, 100));
  app.add_option("--seed", options.seed);
  app.add_option("--wave-size", options.wave_size, "Clients that begin together; 0: all at once")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--wave-ms", options.wave_ms, "Between waves")->check(CLI::NonNegativeNumber);
  app.add_option("--cuda", model.cuda_device, "Number of a card that computes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", model.num_threads, "0: one per core")->check(CLI::Range(0, 1024));
  app.add_option("--max-sequences", model.scheduler.max_sequences)->check(CLI::PositiveNumber);
  app.add_option("--batch-tokens", model.scheduler.max_batch_tokens)->check(CLI::PositiveNumber);
  app.add_option("--chunk", model.scheduler.prefill_chunk)->check(CLI::PositiveNumber);
  app.add_option("--kv-mib", kv_mib, "Memory for keys and values; 0: as a node would");
  CLI11_PARSE(app, argc, argv);
  model.kv_bytes = kv_mib << 20;
  const auto begin = std::chrono::steady_clock::now();
  auto engine = flotilla::engine::load_model_engine(model);
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!engine.ok()) {
    std::fprintf(stderr, "error: %s\n", engine.error().message.c_str());
    return 1;
  }
  const auto& info = (*engine)->info();
  std::printf("loaded in %.2f s; %llu bytes of state, context %lld, up to %lld sequences\n", load_s,
              static_cast<unsigned long long>((*engine)->stats().kv_bytes_total),
              static_cast<long long>(info.context_length),
              static_cast<long long>(info.max_concurrent));
  return report(options, flotilla::bench::run_load(**engine, options));
}
