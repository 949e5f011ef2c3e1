#include "flotilla/engine/recovering_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "flotilla/backend/device_error.h"
#include "flotilla/engine/engine.h"
#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

using std::chrono::milliseconds;

// A whole engine on a fake device that can be lost.
class FakeModel final : public TextEngine {
 public:
  FakeModel(const RecoveringEngine::Attempt& attempt, std::atomic<bool>& broken,
            std::atomic<int>& alive)
      : alive_(alive) {
    ++alive_;
    EngineOptions options = fake_options();
    options.first_id = attempt.first_id;
    options.on_device_lost = attempt.on_lost;
    auto runner = std::make_unique<FakeRunner>(layout_);
    runner->before_step = [&broken](auto) {
      if (broken) throw backend::DeviceError("the fake device is gone", true);
      std::this_thread::sleep_for(milliseconds(1));
    };
    engine_ = std::make_unique<Engine>(options, layout_, std::move(runner),
                                       std::make_shared<FakeOutputs>());
    info_.model = "fake";
    info_.model_digest = "digest";
  }
  ~FakeModel() override { --alive_; }
  const EngineInfo& info() const override { return info_; }
  Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob) const override {
    return std::shared_ptr<const PreparedJob>(fake_job(1, 20, 200));
  }
  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink) override {
    return engine_->submit(std::move(job), std::move(sink));
  }
  void cancel(RequestId id) override { engine_->cancel(id); }
  void resume_output(RequestId id) override { engine_->resume_output(id); }
  EngineStats stats() const override { return engine_->stats(); }
  bool healthy() const override { return engine_->healthy(); }
  std::string decode(std::span<const TokenId>) const override { return "text"; }

 private:
  std::atomic<int>& alive_;
  const state::StateLayout layout_ = fake_layout();
  std::unique_ptr<Engine> engine_;
  EngineInfo info_;
};

struct Fixture {
  std::atomic<bool> broken{false};
  std::atomic<int> alive{0};
  std::atomic<int> loads{0};
  std::atomic<int> failing_loads{0};
  std::shared_ptr<TextEngine> engine;

  Fixture() {
    auto made = RecoveringEngine::make(
        [this](RecoveringEngine::Attempt attempt) -> Result<std::shared_ptr<TextEngine>> {
          EXPECT_EQ(alive, 0) << "the lost engine still holds the device";
          ++loads;
          if (failing_loads > 0) {
            --failing_loads;
            return Error{ErrorCode::kUnavailable, "not yet"};
          }
          return std::shared_ptr<TextEngine>(std::make_shared<FakeModel>(attempt, broken, alive));
        },
        {.first_pause = milliseconds(1), .longest_pause = milliseconds(4)});
    EXPECT_TRUE(made.ok());
    engine = std::move(made).value();
  }
  // The finish of one request, or what submit() said.
  Result<Finish> ask(RequestId* id = nullptr) {
    FLOTILLA_TRY(auto job, engine->prepare({}));
    std::promise<Finish> finish;
    FLOTILLA_TRY(const RequestId got, engine->submit(job, [&](TokenEvent event) {
      if (event.finish) finish.set_value(*event.finish);
      return true;
    }));
    if (id != nullptr) *id = got;
    return finish.get_future().get();
  }
  void wait_until_healthy() {
    for (int i = 0; i < 5000 && !engine->healthy(); ++i)
      std::this_thread::sleep_for(milliseconds(1));
    ASSERT_TRUE(engine->healthy());
  }
};

TEST(RecoveringEngine, ALostDeviceFailsItsRequestsAndIsLoadedAgain) {
  Fixture f;
  RequestId before, after;
  auto good = f.ask(&before);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->reason, FinishReason::kLength);
  f.failing_loads = 3;
  f.broken = true;
  auto lost = f.ask();
  ASSERT_TRUE(lost.ok());
  EXPECT_EQ(lost->reason, FinishReason::kError);
  EXPECT_EQ(lost->error->code, ErrorCode::kModelFault);
  f.broken = false;
  // Its requests hear of the fault before it is known to be lost.
  for (int i = 0; i < 5000 && f.loads < 5; ++i) std::this_thread::sleep_for(milliseconds(1));
  f.wait_until_healthy();
  EXPECT_EQ(f.loads, 5);
  auto again = f.ask(&after);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->reason, FinishReason::kLength);
  EXPECT_GT(after.value, before.value + 1000) << "ids come again";
  EXPECT_EQ(f.engine->info().model, "fake");
}

TEST(RecoveringEngine, RefusesWithATypedErrorMeanwhile) {
  Fixture f;
  f.failing_loads = 1'000'000;
  f.broken = true;
  ASSERT_TRUE(f.ask().ok());
  for (int i = 0; i < 5000 && f.loads < 3; ++i) std::this_thread::sleep_for(milliseconds(1));
  const auto refused = f.ask();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(f.engine->healthy());
  EXPECT_EQ(f.engine->stats().num_running, 0u);
  f.engine.reset();  // ends although nothing was ever loaded again
}

TEST(RecoveringEngine, OneFailedLoadAtTheStartIsTold) {
  const auto made = RecoveringEngine::make([](RecoveringEngine::Attempt) {
    return Result<std::shared_ptr<TextEngine>>(Error{ErrorCode::kUnavailable, "no card"});
  });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "no card");
}

}  // namespace
}  // namespace flotilla::engine
