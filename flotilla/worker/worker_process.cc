#include "flotilla/worker/worker_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/engine/recovering_engine.h"
#include "flotilla/worker/remote_engine.h"
#include "flotilla/worker/worker_server.h"

extern char** environ;

namespace flotilla::worker {
namespace {

using engine::MemoryGrant;
using engine::ModelEngineOptions;
using engine::RecoveringEngine;
using engine::TextEngine;

// A worker that was told to end has this long to give its memory back.
constexpr std::chrono::seconds kEndPatience{30};
constexpr std::chrono::milliseconds kEndPoll{5};
// A device that hangs must not keep a worker whose program is gone.
constexpr unsigned kSecondsToEnd = 30;
constexpr int kWorkerFd = 3;  // where a worker finds its end of the socket

Error failed(const std::string& what, int error) {
  return {ErrorCode::kUnavailable,
          "a process for the model cannot be started: " + what + ": " + std::strerror(error)};
}

// Of one child process.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  // Waits; by force after kEndPatience. Any thread, any number of times.
  std::string wait() {
    const std::lock_guard lock(mutex_);
    if (!how_.empty()) return how_;
    int status = 0;
    const auto end = std::chrono::steady_clock::now() + kEndPatience;
    pid_t got = 0;
    while ((got = ::waitpid(pid_, &status, WNOHANG)) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ::kill(pid_, SIGKILL);
        got = ::waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(kEndPoll);
    }
    if (got != pid_) {
      how_ = "unnoticed";
    } else if (WIFSIGNALED(status)) {
      how_ = "by signal " + std::to_string(WTERMSIG(status)) + " (" +
             ::strsignal(WTERMSIG(status)) + ")";
    } else {
      how_ = "with status " + std::to_string(WEXITSTATUS(status));
    }
    return how_;
  }

 private:
  const pid_t pid_;
  std::mutex mutex_;
  std::string how_;  // guarded by mutex_; empty: not known to have ended
};

struct FileActions {
  FileActions() { ::posix_spawn_file_actions_init(&actions); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions); }
  posix_spawn_file_actions_t actions;
};
struct SpawnAttributes {
  SpawnAttributes() { ::posix_spawnattr_init(&attributes); }
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&attributes); }
  posix_spawnattr_t attributes;
};

// In a process group of its own, so that Ctrl-C reaches the program alone.
Result<RemoteProcess> start(const WorkerCommand& command) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed("socketpair", errno);
  }
  FileActions files;
  ::posix_spawn_file_actions_adddup2(&files.actions, ends[1], kWorkerFd);
  // Sockets of the program must not live on in its workers.
  ::posix_spawn_file_actions_addclosefrom_np(&files.actions, kWorkerFd + 1);
  SpawnAttributes how;
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&how.attributes, &none);
  ::posix_spawnattr_setpgroup(&how.attributes, 0);
  ::posix_spawnattr_setflags(&how.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = command.arguments;
  words.insert(words.begin(), command.program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, command.program.c_str(), &files.actions, &how.attributes,
                                  argv.data(), environ);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return failed(command.program, error);
  }
  auto child = std::make_shared<Child>(pid);
  return RemoteProcess{.fd = ends[0], .wait = [child] { return child->wait(); }};
}

// The engine goes before its memory is given to others.
struct Held {
  MemoryGrant memory, device_memory;
  std::shared_ptr<RemoteEngine> engine;
};

Result<std::shared_ptr<TextEngine>> load_with_fault(ModelEngineOptions options,
                                                    std::uint64_t fault_at_step) {
  if (fault_at_step > 0) {
    options.before_step = [fault_at_step,
                           step = std::uint64_t{0}](backend::Backend& backend) mutable {
      backend::cuda::CudaDevice* card = backend::cuda::cuda_device(backend);
      if (++step == fault_at_step && card != nullptr) card->inject_fault();
    };
  }
  return engine::load_model_engine(options);
}

constexpr std::uint64_t kAllThereIs = std::numeric_limits<std::uint64_t>::max();

Result<std::shared_ptr<TextEngine>> load(const ModelEngineOptions& options,
                                         const WorkerCommand& command,
                                         RecoveringEngine::Attempt attempt,
                                         std::uint64_t fault_at_step) {
  const auto held = std::make_shared<Held>();
  FLOTILLA_TRY(const engine::MemoryNeed need, engine::memory_need(options));
  std::string name = options.name;
  if (name.empty()) {
    name = options.folder.substr(0, options.folder.find_last_not_of('/') + 1);
    name = name.substr(name.rfind('/') + 1);
  }
  RemoteOptions remote;
  remote.order.options = options;
  remote.order.options.name = name;
  remote.order.options.first_id = attempt.first_id;
  remote.order.fault_at_step = fault_at_step;
  remote.progress = options.progress;
  remote.on_lost = std::move(attempt.on_lost);
  if (options.memory != nullptr) {
    FLOTILLA_TRY(held->memory, options.memory->grant(name, need.host));
    if (need.device == 0) held->memory.extend(kAllThereIs, 0);
    remote.order.memory = held->memory.bytes();
  }
  if (need.device > 0 && options.device_memory != nullptr) {
    FLOTILLA_TRY(held->device_memory, options.device_memory->grant(name, need.device));
    held->device_memory.extend(kAllThereIs, 0);
    remote.order.device_memory = held->device_memory.bytes();
  }
  FLOTILLA_TRY(RemoteProcess process, start(command));
  FLOTILLA_TRY(held->engine, RemoteEngine::load(std::move(process), std::move(remote)));
  held->memory.shrink(held->engine->granted());
  held->device_memory.shrink(held->engine->device_granted());
  TextEngine* engine = held->engine.get();
  return std::shared_ptr<TextEngine>(held, engine);
}

}  // namespace

Result<std::shared_ptr<TextEngine>> load_in_worker(const ModelEngineOptions& options,
                                                   const WorkerCommand& command) {
  struct Again {
    ModelEngineOptions options;
    std::uint64_t fault_at_step = 0;
  };
  const auto again = std::make_shared<Again>(Again{options, command.fault_at_step});
  return RecoveringEngine::make([again, command](RecoveringEngine::Attempt attempt) {
    auto loaded = load(again->options, command, std::move(attempt), again->fault_at_step);
    again->options.progress = {};  // of the first load alone
    again->fault_at_step = 0;
    return loaded;
  });
}

int worker_process() {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(kWorkerFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "a worker is started by the program that it works for\n");
    return 2;
  }
  // It is the program that hears of signals and decides what they mean.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  return run_worker(kWorkerFd, {.load = load_with_fault,
                                .on_device_lost = [] { std::_Exit(kExitDeviceLost); },
                                .on_closed = [] { ::alarm(kSecondsToEnd); }});
}

}  // namespace flotilla::worker
