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
  auto& used = gauge("kv_used_bytes", "State in use");
  auto& total = gauge("kv_total_bytes", "State that may be used");
  auto& prompt = counter("prompt_tokens_total", "Prompt tokens computed");
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
    prompt.Add(labels).Increment(static_cast<double>(stats.prompt_tokens_total));
    completion.Add(labels).Increment(static_cast<double>(stats.completion_tokens_total));
  }
  return prom::TextSerializer().Serialize(registry.Collect());
}

}  // namespace flotilla::provider
