// A text engine that is loaded again when its device is lost.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// Thread-safe. While there is no engine, requests are refused with kUnavailable and healthy() is
// false; the process and its connections live on.
class RecoveringEngine final : public TextEngine {
 public:
  struct Attempt {
    std::uint64_t first_id = 1;     // of requests: those of an earlier engine never come again
    std::function<void()> on_lost;  // to be called once, from any thread
  };
  using Load = std::function<Result<std::shared_ptr<TextEngine>>(Attempt)>;
  struct Policy {
    std::chrono::milliseconds first_pause{500};  // doubled after each attempt that fails
    std::chrono::milliseconds longest_pause{60'000};
  };

  // The first attempt, here and now.
  static Result<std::shared_ptr<TextEngine>> make(Load load, Policy policy);
  static Result<std::shared_ptr<TextEngine>> make(Load load) { return make(std::move(load), {}); }
  ~RecoveringEngine() override;

  const EngineInfo& info() const override { return info_; }
  Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob job) const override;
  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink) override;
  void cancel(RequestId request) override;
  void resume_output(RequestId request) override;
  EngineStats stats() const override;
  bool healthy() const override;
  std::string decode(std::span<const TokenId> ids) const override;

 private:
  RecoveringEngine(Load load, Policy policy) : load_(std::move(load)), policy_(policy) {}
  Result<std::shared_ptr<TextEngine>> attempt();
  void watch();
  bool let_go();
  void recover();
  std::shared_ptr<TextEngine> current() const;
  Error absent() const;

  const Load load_;
  const Policy policy_;
  EngineInfo info_;  // constant after make()
  mutable std::shared_mutex engine_mutex_;
  std::shared_ptr<TextEngine> engine_;  // guarded by engine_mutex_; null: lost
  std::mutex mutex_;
  std::condition_variable wake_;
  bool lost_ = false;               // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  std::uint64_t num_attempts_ = 0;  // of the thread, and of make() before it
  std::thread thread_;
};

}  // namespace flotilla::engine
