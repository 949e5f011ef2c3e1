#include "flotilla/provider/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace flotilla::provider {
namespace prom = prometheus;

std::string render_metrics(const ModelManager& models) {
  // Made anew for each scrape: the engines own the numbers, and a model that was unloaded must not
  // linger.
  prom::Registry registry;
  const auto gauge = [&](const char* name, const char* help) -> prom::Family<prom::Gauge>& {
    return prom::BuildGauge().Name(std::string("flotilla_") + name).Help(help).Register(registry);
  };
  const auto counter = [&](const char* name, const char* help) -> prom::Family<prom::Counter>& {
    return prom::BuildCounter().Name(std::string("flotilla_") + name).Help(help).Register(registry);
  };
  auto& loaded = gauge("model_loaded", "1 when the model is loaded");
  auto& healthy = gauge("model_healthy", "0 while the engine pauses after failures");
  auto& running = gauge("sequences_running", "Sequences that hold state");
  auto& waiting = gauge("sequences_waiting", "Sequences that wait for their turn");
  auto& used = gauge("kv_used_bytes", "State of running sequences");
  auto& total = gauge("kv_total_bytes", "State that may be used");
  auto& cached = gauge("prefix_cache_bytes", "State that the prefix cache knows");
  auto& checkpoints = gauge("prefix_cache_checkpoint_bytes", "The part of it that is checkpoints");
  auto& resident = gauge("model_resident_bytes", "Weights and workspace");
  auto& hits = counter("prefix_cache_hits_total", "Sequences that took up a cached prefix");
  auto& misses = counter("prefix_cache_misses_total", "Sequences that found none");
  auto& hit_tokens =
      counter("prefix_cache_hit_tokens_total", "Tokens that were not computed again");
  auto& evictions = counter("prefix_cache_evictions_total", "Cached states that made room");
  auto& preemptions = counter("preemptions_total", "Sequences that lost their state to others");
  auto& prompt = counter("prompt_tokens_total", "Prompt tokens of accepted requests");
  auto& completion = counter("completion_tokens_total", "Tokens generated");
  for (const ModelRecord& record : models.list()) {
    const prom::Labels labels{{"model", record.name}};
    loaded.Add(labels).Set(record.engine != nullptr ? 1 : 0);
    if (record.engine == nullptr) continue;
    const engine::EngineStats stats = record.engine->stats();
    healthy.Add(labels).Set(record.engine->healthy() ? 1 : 0);
    running.Add(labels).Set(stats.num_running);
    waiting.Add(labels).Set(stats.num_waiting);
    used.Add(labels).Set(static_cast<double>(stats.kv_bytes_used));
    total.Add(labels).Set(static_cast<double>(stats.kv_bytes_total));
    const state::PrefixCacheStats& cache = stats.prefix_cache;
    cached.Add(labels).Set(static_cast<double>(cache.bytes));
    checkpoints.Add(labels).Set(static_cast<double>(cache.checkpoint_bytes));
    resident.Add(labels).Set(static_cast<double>(record.engine->info().resident_bytes));
    hits.Add(labels).Increment(static_cast<double>(cache.hits));
    misses.Add(labels).Increment(static_cast<double>(cache.misses));
    hit_tokens.Add(labels).Increment(static_cast<double>(cache.hit_tokens));
    evictions.Add(labels).Increment(static_cast<double>(cache.evictions));
    preemptions.Add(labels).Increment(static_cast<double>(stats.num_preemptions));
    prompt.Add(labels).Increment(static_cast<double>(stats.prompt_tokens_total));
    completion.Add(labels).Increment(static_cast<double>(stats.completion_tokens_total));
  }
  return prom::TextSerializer().Serialize(registry.Collect());
}

}  // namespace flotilla::provider
