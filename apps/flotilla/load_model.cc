#include "apps/flotilla/load_model.h"

#include "apps/flotilla/console.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/engine/model_engine.h"
#include "flotilla/log/log.h"
#include "flotilla/worker/worker_process.h"

namespace flotilla::apps {

namespace {

Result<std::shared_ptr<engine::TextEngine>> in_worker(const engine::ModelEngineOptions& options) {
  if (options.cuda_device) backend::cuda::release_cuda_device(*options.cuda_device);
  return worker::load_in_worker(
      options, {.arguments = {"engine-worker", "--log-level", std::string(to_string(log::level())),
                              "--log-format", std::string(to_string(log::format()))}});
}

}  // namespace

Result<std::shared_ptr<engine::TextEngine>> load_model(const LoadOptions& options) {
  FLOTILLA_TRY(const std::string folder, resolve_model(options.model, options.models_dir));
  FLOTILLA_TRY(const Device device, choose_device(options.engine.device));
  FLOTILLA_TRY(const bool isolated, wants_worker(options.engine, device));
  ProgressBar bar("loading " + folder);
  engine::ModelEngineOptions engine_options;
  engine_options.folder = folder;
  engine_options.num_threads = static_cast<int>(options.threads);
  engine_options.pin_threads = options.pin_threads;
  apply(options.engine, engine_options);
  std::optional<EngineMemory> memory = options.memory;
  if (!memory) {
    FLOTILLA_TRY(memory, make_memory(options.engine));
  }
  engine_options.memory = memory->host;
  engine_options.cuda_device = device.cuda;
  engine_options.device_memory = memory->device;
  engine_options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
  };
  auto engine = isolated ? in_worker(engine_options) : engine::load_model_engine(engine_options);
  bar.finish();
  return engine;
}

}  // namespace flotilla::apps
