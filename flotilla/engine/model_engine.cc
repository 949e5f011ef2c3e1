#include "flotilla/engine/model_engine.h"

#include <malloc.h>

#include <algorithm>
#include <boost/json.hpp>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "flotilla/backend/cpu/thread_pool.h"
#include "flotilla/backend/device_error.h"
#include "flotilla/backend/numerics.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/generation_defaults.h"
#include "flotilla/checkpoint/model_digest.h"
#include "flotilla/engine/device_pages.h"
#include "flotilla/engine/engine.h"
#include "flotilla/engine/model_runner.h"
#include "flotilla/engine/recovering_engine.h"
#include "flotilla/engine/text_assets.h"
#include "flotilla/log/log.h"
#include "flotilla/models/causal_lm.h"
#include "flotilla/sampling/sampling_params.h"
#include "flotilla/state/state_cost.h"

namespace flotilla::engine {
namespace {

constexpr std::size_t kDefaultKvBytes = std::size_t{2} << 30;  // when no limit is given
constexpr std::int64_t kLeastTokens = 512;  // room for them comes before other models' wishes
constexpr std::uint64_t kFixedWorkspace = std::uint64_t{64} << 20;
constexpr std::int64_t kSmallestContext = 64;  // less is not worth serving
// A card has its best rate with large steps; these hold up others that decode by about 0.1 s.
constexpr std::int64_t kDeviceChunk = 1024, kDeviceBatchTokens = 1152;
constexpr std::uint64_t kDeviceHostBytes = std::uint64_t{256} << 20;  // pinned memory and tables
// What a model takes of a card besides weights and state: the backend's scratch memory, and 0.6 GiB
// of the driver for the process that runs it.
constexpr std::uint64_t kDeviceWorkspace = (std::uint64_t{4} << 30) + (std::uint64_t{614} << 20);
constexpr std::uint64_t kDeviceSpare = std::uint64_t{1} << 30;  // graphs, other programs

// Destroyed in reverse: the engine's thread ends before model and backend go.
struct LoadedParts {
  MemoryGrant memory, device_memory;
  EngineInfo info;
  std::shared_ptr<const TextAssets> assets;
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<models::CausalLM> model;
  std::unique_ptr<Engine> engine;
};

class ModelEngine final : public TextEngine {
 public:
  explicit ModelEngine(LoadedParts parts) : parts_(std::move(parts)) {}

  const EngineInfo& info() const override { return parts_.info; }
  Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob job) const override {
    FLOTILLA_TRY_STATUS(sampling::validate(job.sampling, parts_.info.vocab_size));
    return parts_.assets->prepare(std::move(job), parts_.info.context_length);
  }
  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink) override {
    return parts_.engine->submit(std::move(job), std::move(sink));
  }
  void cancel(RequestId request) override { parts_.engine->cancel(request); }
  void resume_output(RequestId request) override { parts_.engine->resume_output(request); }
  EngineStats stats() const override { return parts_.engine->stats(); }
  bool healthy() const override { return parts_.engine->healthy(); }
  std::string decode(std::span<const TokenId> ids) const override {
    return parts_.assets->decode(ids);
  }

 private:
  LoadedParts parts_;
};

void return_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::string last_component(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::size_t slash = folder.find_last_of('/');
  return slash == std::string::npos ? folder : folder.substr(slash + 1);
}

std::uint64_t config_number(const boost::json::value& config, std::string_view key) {
  const boost::json::object* root = config.if_object();
  if (root == nullptr) return 0;
  for (const boost::json::value* at : {root->if_contains("text_config"), &config}) {
    const boost::json::object* object = at == nullptr ? nullptr : at->if_object();
    const boost::json::value* found = object == nullptr ? nullptr : object->if_contains(key);
    const std::int64_t* number = found == nullptr ? nullptr : found->if_int64();
    if (number != nullptr && *number > 0) return static_cast<std::uint64_t>(*number);
  }
  return 0;
}

// Scratch memory of steps, from above: the activations of a layer that are alive at a time are less
// than 40 rows of the hidden size (an MLP of eight times the size, gate and product, and what
// stands around them), and there is one row of logits per sequence. Threads and tables take a fixed
// part.
std::uint64_t workspace_bytes(const checkpoint::Checkpoint& checkpoint,
                              const SchedulerOptions& scheduler) {
  const std::uint64_t hidden = config_number(checkpoint.config(), "hidden_size");
  const std::uint64_t vocab = config_number(checkpoint.config(), "vocab_size");
  const auto rows = static_cast<std::uint64_t>(scheduler.max_batch_tokens);
  const auto wanted =
      static_cast<std::uint64_t>(std::min(scheduler.max_sequences, scheduler.max_batch_tokens));
  return sizeof(float) * (rows * hidden * 40 + wanted * vocab * 2) + kFixedWorkspace;
}

// Bytes for pages: as many as all sequences could use, within what the memory leaves.
Result<std::size_t> kv_budget(const ModelEngineOptions& options, const SchedulerOptions& scheduler,
                              const models::CausalLM& model, std::int64_t context,
                              MemoryGrant& grant) {
  const std::size_t useful = model.state_layout().peak_bytes(context, scheduler.prefill_chunk) *
                             static_cast<std::size_t>(scheduler.max_sequences);
  const std::size_t wanted =
      options.kv_bytes > 0 ? static_cast<std::size_t>(options.kv_bytes) : useful;
  if (options.memory == nullptr) {
    return options.kv_bytes > 0 ? wanted : std::min(useful, kDefaultKvBytes);
  }
  const std::size_t least = options.kv_bytes > 0
                                ? wanted
                                : model.state_layout().peak_bytes(std::min(context, kLeastTokens),
                                                                  scheduler.prefill_chunk);
  const std::uint64_t taken = grant.extend(wanted, least);
  if (options.kv_bytes > 0 && taken < wanted) {
    return Error{ErrorCode::kResourceExhausted,
                 "the state of model '" + options.folder + "' needs " + std::to_string(wanted) +
                     " bytes of memory, " + std::to_string(taken) + " are free"};
  }
  return static_cast<std::size_t>(taken);
}

// Pages in the memory of the card: all that is left, if nothing else is said.
Result<std::shared_ptr<DevicePages>> device_pages(const ModelEngineOptions& options,
                                                  const SchedulerOptions& scheduler,
                                                  const models::CausalLM& model,
                                                  std::int64_t context, backend::PageDevice& device,
                                                  MemoryGrant& grant) {
  const state::StateLayout& layout = model.state_layout();
  if (options.kv_bytes > 0) {
    return DevicePages::make(device, layout, static_cast<std::size_t>(options.kv_bytes));
  }
  const std::uint64_t free = device.free_bytes();
  std::uint64_t bytes = free > kDeviceSpare ? free - kDeviceSpare : 0;
  if (options.device_memory != nullptr) {
    const std::size_t least =
        layout.peak_bytes(std::min(context, kLeastTokens), scheduler.prefill_chunk);
    bytes = grant.extend(bytes, std::min<std::uint64_t>(bytes, 2 * least));
  }
  return DevicePages::make(device, layout,
                           DevicePages::usable_of(static_cast<std::size_t>(bytes), layout));
}

Result<std::unique_ptr<backend::Backend>> make_backend(const ModelEngineOptions& options) {
  if (options.cuda_device) return backend::make_cuda_backend(*options.cuda_device);
  return backend::make_cpu_backend({.num_threads = options.num_threads,
                                    .pin_threads = options.pin_threads,
                                    .target = options.target,
                                    .pack_weights = options.pack_weights});
}

SchedulerOptions steps_for_device(SchedulerOptions scheduler) {
  const SchedulerOptions defaults;
  if (scheduler.prefill_chunk == defaults.prefill_chunk) scheduler.prefill_chunk = kDeviceChunk;
  if (scheduler.max_batch_tokens == defaults.max_batch_tokens) {
    scheduler.max_batch_tokens = std::max(kDeviceBatchTokens, scheduler.prefill_chunk);
  }
  return scheduler;
}

SamplingDefaults sampling_defaults(const checkpoint::GenerationDefaults& from) {
  SamplingDefaults out;
  out.temperature = from.temperature;
  out.top_p = from.top_p;
  out.top_k = from.top_k;
  out.min_p = from.min_p;
  out.repetition_penalty = from.repetition_penalty;
  return out;
}

std::vector<TokenId> joined(std::vector<TokenId> ids, const std::vector<TokenId>& more,
                            const std::vector<TokenId>& still_more) {
  ids.insert(ids.end(), more.begin(), more.end());
  ids.insert(ids.end(), still_more.begin(), still_more.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

MemoryNeed need_of(const checkpoint::Checkpoint& checkpoint, const SchedulerOptions& scheduler,
                   bool on_device) {
  const std::uint64_t weights = checkpoint.tensor_bytes();
  if (on_device) return {.host = kDeviceHostBytes, .device = weights + kDeviceWorkspace};
  return {.host = weights + workspace_bytes(checkpoint, scheduler)};
}

}  // namespace

Result<MemoryNeed> memory_need(const ModelEngineOptions& options) {
  FLOTILLA_TRY(const checkpoint::Checkpoint checkpoint,
               checkpoint::Checkpoint::open(options.folder));
  const bool on_device = options.cuda_device.has_value();
  return need_of(checkpoint, on_device ? steps_for_device(options.scheduler) : options.scheduler,
                 on_device);
}

namespace {

// Loads and hashes at the same time: what one of them reads, the other finds in memory.
Result<checkpoint::ModelDigest> load_weights(const checkpoint::Checkpoint& checkpoint,
                                             const ModelEngineOptions& options,
                                             LoadedParts& parts) {
  std::mutex mutex;
  std::uint64_t loaded = 0, hashed = 0;  // guarded by mutex
  const std::uint64_t total = checkpoint.tensor_bytes();
  bool hashes = false;  // guarded by mutex
  const auto report = [&] {
    if (options.progress) options.progress(hashes ? std::min(loaded, hashed) : loaded, total);
  };
  auto hashing = std::async(std::launch::async, [&] {
    return checkpoint::model_digest(options.folder, checkpoint::DigestMode::kCached,
                                    [&](std::uint64_t done, std::uint64_t of) {
                                      const std::lock_guard lock(mutex);
                                      hashes = true;
                                      hashed = of == 0 ? total : std::min(total, done);
                                      report();
                                    });
  });
  auto model =
      models::load_model(checkpoint, *parts.backend, [&](std::uint64_t done, std::uint64_t) {
        const std::lock_guard lock(mutex);
        loaded = done;
        report();
      });
  auto digest = hashing.get();
  FLOTILLA_TRY(parts.model, std::move(model));
  return digest;
}

Result<std::shared_ptr<TextEngine>> load(const ModelEngineOptions& options) {
  FLOTILLA_TRY(const checkpoint::Checkpoint checkpoint,
               checkpoint::Checkpoint::open(options.folder));
  const std::string name = options.name.empty() ? last_component(options.folder) : options.name;
  const bool on_device = options.cuda_device.has_value();
  const SchedulerOptions scheduler =
      on_device ? steps_for_device(options.scheduler) : options.scheduler;
  const MemoryNeed need = need_of(checkpoint, scheduler, on_device);
  const std::uint64_t resident = on_device ? need.device : need.host;
  LoadedParts parts;
  if (options.memory != nullptr) {
    FLOTILLA_TRY(parts.memory, options.memory->grant(name, need.host));
  }
  if (on_device && options.device_memory != nullptr) {
    FLOTILLA_TRY(parts.device_memory, options.device_memory->grant(name, need.device));
  }
  FLOTILLA_TRY(const checkpoint::GenerationDefaults defaults,
               checkpoint::read_generation_defaults(options.folder, checkpoint.config()));
  FLOTILLA_TRY(parts.assets, TextAssets::load(options.folder, checkpoint.config()));
  FLOTILLA_TRY(parts.backend, make_backend(options));
  FLOTILLA_TRY(const checkpoint::ModelDigest digest, load_weights(checkpoint, options, parts));
  const models::ModelInfo& model = parts.model->info();

  EngineOptions engine;
  engine.scheduler = scheduler;
  engine.prefix_cache = options.prefix_cache;
  engine.leases = options.leases;
  engine.num_threads = options.num_threads > 0 ? options.num_threads : backend::usable_cores();
  engine.model_digest = digest.hex;
  if (model.max_concurrent_sequences > 0) {
    engine.scheduler.max_sequences =
        std::min<std::int64_t>(engine.scheduler.max_sequences, model.max_concurrent_sequences);
  }
  std::int64_t context = model.context_length;
  if (options.context_length > 0) context = std::min(context, options.context_length);
  if (backend::PageDevice* device = parts.backend->page_device()) {
    FLOTILLA_TRY(auto pages, device_pages(options, engine.scheduler, *parts.model, context, *device,
                                          parts.device_memory));
    engine.kv_bytes = pages->usable_bytes();
    engine.pages = std::move(pages);
  } else {
    FLOTILLA_TRY(engine.kv_bytes,
                 kv_budget(options, engine.scheduler, *parts.model, context, parts.memory));
  }
  const std::int64_t fits = parts.model->state_layout().max_length(
      engine.kv_bytes, engine.scheduler.prefill_chunk, context);
  if (fits < std::min(context, kSmallestContext)) {
    const std::size_t needed = parts.model->state_layout().peak_bytes(
        std::min(context, kSmallestContext), engine.scheduler.prefill_chunk);
    return Error{ErrorCode::kResourceExhausted,
                 "model '" + name + "' needs " + std::to_string(needed) +
                     " bytes for state, it has " + std::to_string(engine.kv_bytes) + ": room for " +
                     std::to_string(fits) + " tokens"};
  }
  engine.context_length = fits;
  engine.vocab_size = static_cast<std::size_t>(model.vocab_size);
  engine.eos_ids = joined(model.eos_ids, defaults.eos_ids, parts.assets->extra_stop_ids());
  engine.max_waiting = options.max_waiting;
  engine.first_id = options.first_id;
  engine.on_device_lost = options.on_device_lost;
  engine.model = name;

  parts.info = {
      .model = engine.model,
      .family = model.family,
      .model_digest = digest.hex,
      .numerics_id = backend::numerics_id(*parts.backend),
      .context_length = engine.context_length,
      .max_concurrent = engine.scheduler.max_sequences,
      .vocab_size = model.vocab_size,
      .resident_bytes = resident,
      .state_cost = state::state_cost(parts.model->state_layout(), engine.scheduler.prefill_chunk),
      .sampling_defaults = sampling_defaults(defaults),
      .template_source = parts.assets->template_source(),
      .template_problem = parts.assets->template_problem()};
  if (!parts.info.template_problem.empty()) {
    log::warn("chat_template_problem", {{"model", engine.model},
                                        {"template", parts.info.template_source},
                                        {"what", parts.info.template_problem}});
  }
  parts.engine = std::make_unique<Engine>(
      engine, parts.model->state_layout(),
      std::make_unique<ModelRunner>(*parts.model, *parts.backend, options.before_step),
      parts.assets);
  if (options.progress) options.progress(checkpoint.tensor_bytes(), checkpoint.tensor_bytes());
  // The allocator keeps what was freed; whoever unloads a model wants it back.
  return std::shared_ptr<TextEngine>(new ModelEngine(std::move(parts)), [](TextEngine* gone) {
    delete gone;
    return_free_memory();
  });
}

}  // namespace

namespace {

Result<std::shared_ptr<TextEngine>> load_once(const ModelEngineOptions& options) {
  try {
    return load(options);
  } catch (const backend::DeviceError& error) {
    return Error{ErrorCode::kUnavailable, "model '" + options.folder + "': " + error.what()};
  }
}

}  // namespace

Result<std::shared_ptr<TextEngine>> load_model_engine(const ModelEngineOptions& options) {
  if (!options.cuda_device || options.on_device_lost) return load_once(options);
  const auto again = std::make_shared<ModelEngineOptions>(options);
  return RecoveringEngine::make([again](RecoveringEngine::Attempt attempt) {
    again->first_id = attempt.first_id;
    again->on_device_lost = std::move(attempt.on_lost);
    auto loaded = load_once(*again);
    again->progress = {};  // of the first load alone
    return loaded;
  });
}

}  // namespace flotilla::engine
