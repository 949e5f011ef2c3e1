// The program's side: a text engine whose work is done by another process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "flotilla/engine/text_engine.h"
#include "flotilla/worker/channel.h"

namespace flotilla::worker {

// The other process and what to do with its end.
struct RemoteProcess {
  int fd = -1;  // of the socket to it; owned from now on
  // Waits until it has ended, by force after a while; says how: "by signal 9 (Killed)".
  std::function<std::string()> wait;
};

struct RemoteOptions {
  LoadOrder order;
  engine::LoadProgress progress = {};
  std::function<void()> on_lost = {};  // the process has ended by itself; on a thread of the engine
};

// Thread-safe, as every TextEngine. Destroyed, it waits for the process to end.
class RemoteEngine final : public engine::TextEngine {
 public:
  // Waits until the model is loaded.
  static Result<std::shared_ptr<RemoteEngine>> load(RemoteProcess process, RemoteOptions options);
  ~RemoteEngine() override;

  // Of its two budgets, what it uses.
  std::uint64_t granted() const { return granted_; }
  std::uint64_t device_granted() const { return device_granted_; }

  const engine::EngineInfo& info() const override { return info_; }
  Result<std::shared_ptr<const engine::PreparedJob>> prepare(engine::ChatJob job) const override;
  Result<RequestId> submit(std::shared_ptr<const engine::PreparedJob> job,
                           engine::EventSink sink) override;
  void cancel(RequestId request) override;
  void resume_output(RequestId request) override;
  engine::EngineStats stats() const override;
  bool healthy() const override;
  std::string decode(std::span<const TokenId> ids) const override;

 private:
  struct Live {
    engine::EventSink sink;
    std::uint64_t num_resumes = 0;  // guarded by mutex_
  };
  // Outlives the engine where prepared jobs do.
  struct Link {
    explicit Link(int fd) : channel(fd) {}
    Channel channel;
  };
  struct Handle;
  using Answer = std::optional<std::string>;

  RemoteEngine(RemoteProcess process, RemoteOptions options);
  Answer ask(Kind kind, std::uint64_t tag, std::string_view body,
             std::chrono::milliseconds patience) const;
  StatsAnswer ask_stats() const;
  void take_stats(std::string_view body);
  void read_loop();
  void deliver(std::uint64_t tag, engine::TokenEvent event);
  void lose();
  Error gone() const;

  const RemoteProcess process_;
  RemoteOptions options_;
  const std::shared_ptr<Link> link_;
  engine::EngineInfo info_;  // constant after load()
  std::uint64_t granted_ = 0, device_granted_ = 0;
  mutable std::atomic<std::uint64_t> next_tag_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::uint64_t, std::promise<Answer>> asked_;  // guarded by mutex_
  std::unordered_map<std::uint64_t, std::shared_ptr<Live>> live_;          // guarded by mutex_
  // One question at a time, whoever asks.
  mutable std::optional<std::chrono::steady_clock::time_point> stats_asked_;  // guarded by mutex_
  StatsAnswer stats_;                                                         // guarded by mutex_
  mutable std::condition_variable stats_came_;
  bool dead_ = false;         // guarded by mutex_
  bool device_lost_ = false;  // of the reader
  bool stopping_ = false;     // guarded by mutex_
  std::thread reader_;
};

}  // namespace flotilla::worker
