// The worker's side: loads one model for the program that started it and serves that program alone.
#pragma once

#include <functional>
#include <memory>

#include "flotilla/base/result.h"
#include "flotilla/engine/model_engine.h"

namespace flotilla::worker {

// The process ends with it when its device is lost; the program knows by then.
inline constexpr int kExitDeviceLost = 75;

using LoadEngine = std::function<Result<std::shared_ptr<engine::TextEngine>>(
    const engine::ModelEngineOptions& options, std::uint64_t fault_at_step)>;
struct WorkerHooks {
  LoadEngine load;                       // engine::load_model_engine(), but for tests
  std::function<void()> on_device_lost;  // after the program was told; ends the process
  std::function<void()> on_closed = {};  // the program wants no more: the engine is taken down next
};

// Returns when the program has closed its end of the socket `fd`, which is owned from now on. What
// still ran then is cancelled. The exit status of the process.
int run_worker(int fd, const WorkerHooks& hooks);

}  // namespace flotilla::worker
