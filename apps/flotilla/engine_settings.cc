#include "apps/flotilla/engine_settings.h"

#include "flotilla/provider/hardware.h"

namespace flotilla::apps {

void declare(settings::Settings& s, EngineSettings& e) {
  constexpr std::int64_t kMostMib = std::int64_t{1} << 30;
  constexpr std::int64_t kDay = 86'400;
  s.add("device", &e.device,
        "what computes: auto (a card that can be used, else the CPU), cpu, cuda or cuda:N");
  s.add("device_memory_share", &e.device_memory_share, 0.05, 1.0,
        "part of the card's memory for all models together");
  s.add("isolate", &e.isolate,
        "run each model in a process of its own: on, off or auto (on for a card)");
  s.add("memory_cap_mib", &e.memory_cap_mib, 0, kMostMib,
        "memory for all models together; 0: 90 % of the machine's, and 2 GiB less than it");
  s.add("context_length", &e.context_length, 0, std::int64_t{1} << 31,
        "longest prompt and answer, tokens; 0: what the model and the memory allow");
  s.add("max_sequences", &e.max_sequences, 1, 4096, "requests of a model that run at a time");
  s.add("max_queue", &e.max_queue, 0, 100'000, "requests of a model that wait; more are refused");
  s.add("no_prefix_cache", &e.no_prefix_cache, "compute every prompt from its first token");
  s.add("prefix_cache_mib", &e.prefix_cache_mib, 0, kMostMib,
        "state kept of what ended, per model; 0: all that running requests leave");
  s.add("prefix_checkpoint_mib", &e.checkpoint_mib, 0, kMostMib,
        "the part for checkpoints of models with windows; 0: half of a model's state memory");
  s.add("prefix_checkpoint_interval", &e.checkpoint_interval, 32, std::int64_t{1} << 31,
        "tokens between checkpoints inside a long prompt");
  s.add("admission_timeout_s", &e.admission_timeout_s, 0, kDay,
        "how long a request may wait for its turn; 0: no limit, as for the next three");
  s.add("prefill_timeout_s", &e.prefill_timeout_s, 0, kDay, "without progress of a prompt");
  s.add("decode_timeout_s", &e.decode_timeout_s, 0, kDay, "without progress of an answer");
  s.add("slow_reader_timeout_s", &e.slow_reader_timeout_s, 0, kDay,
        "with a client that reads nothing");
  s.add("first_token_timeout_s", &e.first_token_timeout_s, 0, kDay,
        "how long the first token may take; 0: no limit");
}

Result<bool> wants_worker(const EngineSettings& settings, const Device& device) {
  if (settings.isolate == "auto") return device.cuda.has_value();
  if (settings.isolate == "on") return true;
  if (settings.isolate == "off") return false;
  return Error{ErrorCode::kInvalidArgument,
               "isolate '" + settings.isolate + "' is none of auto, on, off"};
}

Result<EngineMemory> make_memory(const EngineSettings& settings) {
  FLOTILLA_TRY(const Device device, choose_device(settings.device));
  const std::uint64_t cap = settings.memory_cap_mib > 0
                                ? static_cast<std::uint64_t>(settings.memory_cap_mib) << 20
                                : provider::probe_hardware(0).memory_cap_bytes;
  EngineMemory memory{.host = std::make_shared<engine::MemoryBudget>(cap), .device = {}};
  if (device.cuda) {
    const double bytes = static_cast<double>(device.memory_bytes) * settings.device_memory_share;
    memory.device_name = device.name;
    memory.device = std::make_shared<engine::MemoryBudget>(static_cast<std::uint64_t>(bytes));
  }
  return memory;
}

void apply(const EngineSettings& settings, engine::ModelEngineOptions& options) {
  using std::chrono::seconds;
  options.context_length = settings.context_length;
  options.scheduler.max_sequences = settings.max_sequences;
  options.max_waiting = settings.max_queue;
  options.prefix_cache.enabled = !settings.no_prefix_cache;
  options.prefix_cache.max_bytes = static_cast<std::size_t>(settings.prefix_cache_mib) << 20;
  options.prefix_cache.max_checkpoint_bytes = static_cast<std::size_t>(settings.checkpoint_mib)
                                              << 20;
  options.prefix_cache.checkpoint_interval = settings.checkpoint_interval;
  options.leases = {.admission = seconds(settings.admission_timeout_s),
                    .prefill = seconds(settings.prefill_timeout_s),
                    .decode = seconds(settings.decode_timeout_s),
                    .slow_reader = seconds(settings.slow_reader_timeout_s),
                    .first_token = seconds(settings.first_token_timeout_s)};
}

}  // namespace flotilla::apps
