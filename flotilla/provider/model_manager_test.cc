#include "flotilla/provider/model_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>

#include "flotilla/provider/chat_job.h"
#include "flotilla/provider/metrics.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kHello = R"({"model": "demo", "rules": [{"steps": ["hello"]}]})";

TEST(Metrics, ListEveryModelAndTheNumbersOfLoadedOnes) {
  SystemClock clock;
  ModelManager models([](const ModelSource&) { return scripted(kHello); }, clock);
  ASSERT_TRUE(models.add_source({"demo", "/models/demo"}).ok());
  EXPECT_NE(render_metrics(models).find("flotilla_model_loaded{model=\"demo\"} 0"),
            std::string::npos);
  EXPECT_EQ(render_metrics(models).find("flotilla_sequences_running{"), std::string::npos);
  ASSERT_TRUE(models.load_and_wait("demo").ok());
  const std::string text = render_metrics(models);
  EXPECT_NE(text.find("flotilla_model_loaded{model=\"demo\"} 1"), std::string::npos);
  EXPECT_NE(text.find("flotilla_sequences_running{model=\"demo\"} 0"), std::string::npos);
}

TEST(ModelManager, LoadsHandsOutAndUnloads) {
  SystemClock clock;
  std::atomic<int> num_loads{0};
  ModelManager models(
      [&](const ModelSource& source) -> Result<std::shared_ptr<engine::TextEngine>> {
        ++num_loads;
        EXPECT_EQ(source.folder, "/models/demo");
        return scripted(kHello);
      },
      clock);
  std::vector<ModelState> seen;
  models.on_change([&](const ModelRecord& record) { seen.push_back(record.state); });
  ASSERT_TRUE(models.add_source({"demo", "/models/demo"}).ok());
  EXPECT_EQ(models.add_source({"demo", "/x"}).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(models.find("demo").error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(models.load_and_wait("demo").ok());
  ASSERT_TRUE(models.load_and_wait("demo").ok());
  EXPECT_EQ(num_loads, 1);
  ASSERT_TRUE(models.find("demo").ok());
  ASSERT_TRUE(models.unload("demo").ok());
  EXPECT_EQ(models.find("demo").error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(models.load_and_wait("demo").ok());
  EXPECT_EQ(num_loads, 2);
  EXPECT_EQ(seen, (std::vector<ModelState>{ModelState::kLoading, ModelState::kLoaded,
                                           ModelState::kUnloaded, ModelState::kLoading,
                                           ModelState::kLoaded}));
}

TEST(ModelManager, ACheckpointThatDoesNotLoadLeavesTheReason) {
  SystemClock clock;
  ModelManager models(
      [](const ModelSource&) -> Result<std::shared_ptr<engine::TextEngine>> {
        return Error{ErrorCode::kDataLoss, "shard 2 is missing"};
      },
      clock);
  ASSERT_TRUE(models.add_source({"demo", "/models/demo"}).ok());
  EXPECT_EQ(models.load_and_wait("demo").error().message, "shard 2 is missing");
  const auto list = models.list();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].state, ModelState::kFailed);
  EXPECT_EQ(list[0].error->code, ErrorCode::kDataLoss);
}

TEST(ModelManager, UnknownNamesSuggestTheNearest) {
  SystemClock clock;
  ModelManager models(nullptr, clock);
  ASSERT_TRUE(models.add_engine(scripted(kHello)).ok());
  const auto found = models.find("demp");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().param, "model");
  EXPECT_NE(found.error().message.find("did you mean 'demo'"), std::string::npos);
  EXPECT_EQ(models.load_and_wait("demp").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(models.unload("demp").error().code, ErrorCode::kNotFound);
}

// A job that still runs keeps the engine; the last one to let go may stand on the engine's own
// thread.
TEST(ModelManager, UnloadLetsRunningJobsEndAndDestroysTheEngineElsewhere) {
  SystemClock clock;
  ModelManager models(nullptr, clock);
  ASSERT_TRUE(
      models
          .add_engine(scripted(
              R"({"model": "demo", "rules": [{"steps": [{"repeat": 30, "steps": [{"raw": "x", "delay_ms": 2}]}]}]})"))
          .ok());
  auto engine = *models.find("demo");
  auto job = to_chat_job(
      chat_request(R"({"model": "demo", "messages": [{"role": "user", "content": "hi"}]})"),
      engine->info(), 0, "");
  auto prepared = engine->prepare(*job);
  std::promise<engine::FinishReason> finished;
  ASSERT_TRUE(engine
                  ->submit(*prepared,
                           [&, held = engine](engine::TokenEvent event) {
                             if (event.finish) finished.set_value(event.finish->reason);
                             return true;
                           })
                  .ok());
  engine.reset();
  ASSERT_TRUE(models.unload("demo").ok());
  auto future = finished.get_future();
  ASSERT_EQ(future.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(future.get(), engine::FinishReason::kStop);
}

// B71: there is memory for one model; `a` is asked without a pause while `b` shall take its place.
// Whatever the order, every load is answered in bounded time, and `b` comes when `a` has drained.
TEST(ModelManager, ABusyModelThatIsUnloadedMakesRoomForAnother) {
  SystemClock clock;
  std::atomic<int> live{0};
  const auto loader =
      [&](const ModelSource& source) -> Result<std::shared_ptr<engine::TextEngine>> {
    if (live > 0) return Error{ErrorCode::kResourceExhausted, "no memory for " + source.name};
    ++live;
    auto engine = scripted(R"({"model": ")" + source.name + R"(", "rules": [{"steps": ["x"]}]})");
    return std::shared_ptr<engine::TextEngine>(engine.get(),
                                               [&live, engine](engine::TextEngine*) mutable {
                                                 engine.reset();
                                                 --live;
                                               });
  };
  std::mt19937 random(1);
  ModelManager models(loader, clock);
  for (const char* name : {"a", "b"}) ASSERT_TRUE(models.add_source({name, "/"}).ok());
  std::string now = "a", next = "b";
  ASSERT_TRUE(models.load_and_wait(now).ok());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::shared_ptr<engine::TextEngine>> jobs;  // each holds the engine
    const auto ask = [&] {
      if (const auto engine = models.find(now); engine.ok()) jobs.push_back(*engine);
    };
    std::vector<std::future<Status>> loads;
    const auto load = [&] {
      auto done = std::make_shared<std::promise<Status>>();
      loads.push_back(done->get_future());
      models.load(next, [done](Status status) { done->set_value(std::move(status)); });
    };
    bool unloaded = false;
    for (int i = 0; i < 12; ++i) {
      switch (random() % 4) {
        case 0:
          load();
          break;
        case 1:
          if (!unloaded) {
            ASSERT_TRUE(models.unload(now).ok());
          }
          unloaded = true;
          break;
        case 2:
          if (!jobs.empty()) jobs.erase(jobs.begin());
          break;
        default:
          ask();
      }
    }
    if (!unloaded) {
      ASSERT_TRUE(models.unload(now).ok());
    }
    EXPECT_FALSE(models.find(now).ok());  // takes nothing new, so it drains
    jobs.clear();
    for (auto& one : loads) ASSERT_EQ(one.wait_for(10s), std::future_status::ready) << round;
    ASSERT_TRUE(eventually([&] { return models.load_and_wait(next).ok(); })) << round;
    std::swap(now, next);
  }
}

}  // namespace
}  // namespace flotilla::provider
