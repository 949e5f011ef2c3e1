// Runs a model in a process of its own. What a failing device or a crash takes down is that
// process; the program, its other models and its connections live on, and the model is loaded
// again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/engine/model_engine.h"

namespace flotilla::worker {

// How a worker is started: a program that calls worker_process().
struct WorkerCommand {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;
  std::uint64_t fault_at_step = 0;  // for tests: where the first worker's card is made to fail
};

// As engine::load_model_engine(). What the worker may use of options.memory and
// options.device_memory is granted to it here: all that other models leave, then what it uses.
// options.before_step is not for workers.
Result<std::shared_ptr<engine::TextEngine>> load_in_worker(
    const engine::ModelEngineOptions& options, const WorkerCommand& command);

// All that a worker does, after setting up its log. The exit status of the process.
int worker_process();

}  // namespace flotilla::worker
