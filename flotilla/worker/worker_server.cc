#include "flotilla/worker/worker_server.h"

#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flotilla/base/bounded_queue.h"
#include "flotilla/log/log.h"
#include "flotilla/worker/channel.h"

namespace flotilla::worker {
namespace {

constexpr int kPreparers = 2;  // threads that render and tokenise

struct Run {
  std::atomic<bool> paused{false};  // its reader is full
  RequestId request;                // written before it can be found
};

class Server {
 public:
  Server(int fd, const WorkerHooks& hooks) : hooks_(hooks), channel_(fd) {}

  int run() {
    if (!load()) return 1;
    std::vector<std::thread> preparers;
    for (int i = 0; i < kPreparers; ++i) preparers.emplace_back([this] { prepare_loop(); });
    while (auto frame = channel_.receive()) take(std::move(*frame));
    if (hooks_.on_closed) hooks_.on_closed();
    orders_.close();
    for (std::thread& thread : preparers) thread.join();
    engine_.reset();  // its last events go out still
    channel_.finish_sending();
    return 0;
  }

 private:
  using Prepared = std::shared_ptr<const engine::PreparedJob>;

  bool load() {
    const auto frame = channel_.receive();
    LoadOrder order;
    if (!frame || frame->kind != Kind::kLoad || !unpack(frame->body, order)) return false;
    if (order.memory) {
      order.options.memory = std::make_shared<engine::MemoryBudget>(*order.memory);
    }
    if (order.device_memory) {
      order.options.device_memory = std::make_shared<engine::MemoryBudget>(*order.device_memory);
    }
    order.options.progress = [this](std::uint64_t done, std::uint64_t total) {
      channel_.send(Kind::kProgress, 0, packed(done, total));
    };
    order.options.on_device_lost = [this] {
      channel_.send(Kind::kLost, 0);
      channel_.flush();
      hooks_.on_device_lost();
    };
    auto loaded = hooks_.load(order.options, order.fault_at_step);
    LoadAnswer answer;
    if (loaded.ok()) {
      engine_ = std::move(loaded).value();
      answer.info = engine_->info();
      if (order.options.memory) answer.granted = order.options.memory->granted_bytes();
      if (order.options.device_memory) {
        answer.device_granted = order.options.device_memory->granted_bytes();
      }
    } else {
      answer.error = std::move(loaded).error();
    }
    channel_.send(Kind::kLoaded, 0, packed(answer));
    if (answer.error) channel_.finish_sending();
    return engine_ != nullptr;
  }

  void take(Frame frame) {
    switch (frame.kind) {
      case Kind::kPrepare:
        orders_.try_push(std::move(frame));
        return;
      case Kind::kForget: {
        const std::lock_guard lock(mutex_);
        prepared_.erase(frame.tag);
        return;
      }
      case Kind::kSubmit:
        return submit(frame);
      case Kind::kCancel:
        if (const auto run = find(frame.tag)) engine_->cancel(run->request);
        return;
      case Kind::kPause:
        if (const auto run = find(frame.tag)) run->paused = true;
        return;
      case Kind::kResume:
        if (const auto run = find(frame.tag)) {
          run->paused = false;
          engine_->resume_output(run->request);
        }
        return;
      case Kind::kStats: {
        StatsAnswer answer{.stats = engine_->stats(), .healthy = engine_->healthy()};
        return channel_.send(Kind::kAnswer, frame.tag, packed(answer));
      }
      case Kind::kDecode: {
        std::vector<TokenId> ids;
        if (unpack(frame.body, ids)) {
          channel_.send(Kind::kAnswer, frame.tag, packed(engine_->decode(ids)));
        }
        return;
      }
      default:
        return;
    }
  }

  void prepare_loop() {
    while (auto frame = orders_.pop()) {
      PrepareAnswer answer;
      engine::ChatJob job;
      if (!unpack(frame->body, job)) {
        answer.error = Error{ErrorCode::kInternal, "a job did not reach its worker whole"};
      } else if (auto prepared = prepare(std::move(job)); prepared.ok()) {
        answer.prompt_ids = (*prepared)->prompt_ids;
        answer.prompt_text = (*prepared)->prompt_text;
        answer.prompt_tail = (*prepared)->prompt_tail;
        answer.prompt_digest = (*prepared)->prompt_digest;
        const std::lock_guard lock(mutex_);
        prepared_.emplace(frame->tag, std::move(prepared).value());
      } else {
        answer.error = std::move(prepared).error();
      }
      channel_.send(Kind::kAnswer, frame->tag, packed(answer));
    }
  }

  // A bad alloc of one prompt is no reason to end the others.
  Result<Prepared> prepare(engine::ChatJob job) {
    try {
      return engine_->prepare(std::move(job));
    } catch (const std::exception& error) {
      log::error("prepare_failed", {{"what", error.what()}});
      return Error{ErrorCode::kInternal, "the prompt could not be prepared"};
    }
  }

  void submit(const Frame& frame) {
    std::uint64_t handle = 0;
    engine::ChatJob wanted;
    std::shared_ptr<engine::PreparedJob> job;
    if (unpack(frame.body, handle, wanted)) {
      const std::lock_guard lock(mutex_);
      const auto found = prepared_.find(handle);
      if (found != prepared_.end()) job = std::make_shared<engine::PreparedJob>(*found->second);
    }
    std::optional<Error> error;
    if (job == nullptr) {
      error = Error{ErrorCode::kUnavailable, "the request was prepared for a process that is gone"};
    } else {
      job->job = std::move(wanted);
      const auto run = std::make_shared<Run>();
      const std::uint64_t tag = frame.tag;
      {
        const std::lock_guard lock(mutex_);
        runs_.emplace(tag, run);
      }
      auto accepted = engine_->submit(std::move(job), [this, tag, run](engine::TokenEvent event) {
        const bool last = event.finish.has_value();
        channel_.send(Kind::kEvent, tag, packed(event));
        if (last) {
          const std::lock_guard lock(mutex_);
          runs_.erase(tag);
        }
        return !run->paused;
      });
      if (accepted.ok()) {
        run->request = *accepted;
      } else {
        error = std::move(accepted).error();
        const std::lock_guard lock(mutex_);
        runs_.erase(tag);
      }
    }
    channel_.send(Kind::kAnswer, frame.tag, packed(error));
  }

  std::shared_ptr<Run> find(std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find(tag);
    return found == runs_.end() ? nullptr : found->second;
  }

  const WorkerHooks& hooks_;
  Channel channel_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Prepared> prepared_;          // guarded by mutex_
  std::unordered_map<std::uint64_t, std::shared_ptr<Run>> runs_;  // guarded by mutex_
  // The program asks only so much at a time as it has threads that wait for answers.
  BoundedQueue<Frame> orders_{std::numeric_limits<std::size_t>::max()};
  std::shared_ptr<engine::TextEngine> engine_;  // constant after load()
};

}  // namespace

int run_worker(int fd, const WorkerHooks& hooks) { return Server(fd, hooks).run(); }

}  // namespace flotilla::worker
