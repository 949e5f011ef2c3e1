#include "flotilla/provider/agent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "flotilla/engine/model_engine.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kScript = R"({"model": "demo", "rules": [
  {"match": {"user": "slow"}, "steps": [{"repeat": 2000, "steps": [{"raw": "x", "delay_ms": 1}]}]},
  {"match": {"user": "late"}, "start_ms": 700, "steps": ["x"]},
  {"match": {"user": "short"}, "steps": [{"raw": "a", "delay_ms": 100}]},
  {"steps": ["hello"]}]})";

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(models_.add_engine(scripted(kScript)).ok()); }
  void TearDown() override { agent_.reset(); }

  void start_agent() {
    AgentOptions options{.link = {.websocket = {}, .credentials = credentials_}};
    options.link.websocket.url =
        "ws://127.0.0.1:" + std::to_string(coordinator_.port()) + "/v1/link";
    options.link.backoff = {.base = 20ms, .max = 100ms, .stable_after = 10'000ms, .herd = 0ms};
    options.link.handshake_timeout = 300ms;
    options.software = "flotilla test";
    options.on_rejected = [this](const Error& error) {
      std::lock_guard lock(mutex_);
      rejections_.push_back(error);
    };
    agent_ = std::make_unique<Agent>(io_, models_, clock_, std::move(options));
    agent_->start();
  }
  bool wait_registered(int n = 1) {
    return eventually([&] { return coordinator_.num_registered >= n && agent_->connected(); });
  }
  std::optional<protocol::LinkFault> wait_rejection() {
    std::optional<protocol::LinkFault> fault;
    eventually(
        [&] {
          std::lock_guard lock(mutex_);
          if (!rejections_.empty()) fault = protocol::link_fault(rejections_.front());
          return !rejections_.empty();
        },
        2000ms);
    return fault;
  }
  JobId prepare(std::string_view user) {
    const JobId job = protocol::random_job_id();
    const std::string body = R"({"model": "demo", "messages": [{"role": "user", "content": ")" +
                             std::string(user) + "\"}]}";
    coordinator_.send(protocol::Prepare{.model = "demo",
                                        .request = "r",
                                        .tenant = "t",
                                        .choice = 0,
                                        .job = api::to_job_json(chat_request(body))},
                      job, 1);
    return job;
  }
  JobId run(std::string_view user) {
    const JobId job = prepare(user);
    EXPECT_TRUE(coordinator_.inbox.take<protocol::Lease>(job));
    coordinator_.send(protocol::Start{}, job, 1);
    return job;
  }

  net::IoRuntime io_{2};
  SystemClock clock_;
  ModelManager models_{[](const ModelSource&) -> Result<std::shared_ptr<engine::TextEngine>> {
                         return scripted(R"({"model": "later", "rules": [{"steps": ["late"]}]})");
                       },
                       clock_};
  FakeCoordinator coordinator_{io_};
  const protocol::Identity node_ = protocol::Identity::generate();
  protocol::NodeCredentials credentials_ = coordinator_.credentials(node_);
  std::mutex mutex_;
  std::vector<Error> rejections_;  // guarded by mutex_
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RegistersBeatsAndServes) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  const auto reg = coordinator_.inbox.take<protocol::Register>();
  ASSERT_TRUE(reg);
  ASSERT_EQ(reg->models.size(), 1u);
  EXPECT_EQ(reg->models[0].id, "demo");
  EXPECT_EQ(reg->models[0].family, "scripted");
  EXPECT_FALSE(reg->models[0].model_digest.empty());
  EXPECT_EQ(reg->models[0].numerics_id, models_.list()[0].engine->info().numerics_id);
  EXPECT_EQ(reg->models[0].numerics_id.size(), 64u);
  EXPECT_GT(reg->hardware.memory_bytes, 0u);
  EXPECT_LT(reg->hardware.memory_cap_bytes, reg->hardware.memory_bytes);
  const auto first = coordinator_.inbox.take<protocol::Heartbeat>(),
             second = coordinator_.inbox.take<protocol::Heartbeat>();
  ASSERT_TRUE(first && second);
  EXPECT_LT(first->sequence, second->sequence);
  const JobId job = run("hi");
  ASSERT_TRUE(coordinator_.inbox.take<protocol::Finish>(job));
  EXPECT_EQ(coordinator_.inbox.take_output(job).content, "hello");
}

TEST_F(AgentTest, ShowsProgressWhileAJobHasNoTokenYet) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  EXPECT_GT(coordinator_.inbox.take<protocol::Register>()->progress_interval_ms, 0u);
  const JobId job = run("late");
  for (int i = 0; i < 2; ++i) {
    const auto sign = coordinator_.inbox.take<protocol::Progress>();
    ASSERT_TRUE(sign);
    EXPECT_TRUE(sign->stuck.empty());
  }
  EXPECT_EQ(coordinator_.inbox.count<protocol::Tokens>(), 0u);
  EXPECT_TRUE(coordinator_.inbox.take<protocol::Finish>(job));
}

// What a coordinator would compute from the offer is what the node leases, and what a job really
// takes is no more.
TEST_F(AgentTest, ARealModelSaysWhatItsStateCostsAndItsLeasesAgree) {
  engine::ModelEngineOptions real;
  real.folder = FLOTILLA_SOURCE_DIR "/models/flotilla-tiny";
  real.num_threads = 1;
  real.prefix_cache.enabled = false;  // its own pages would be counted in the heartbeats
  const auto loaded = engine::load_model_engine(real);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE(models_.add_engine(*loaded).ok());
  start_agent();
  ASSERT_TRUE(wait_registered());
  const auto reg = coordinator_.inbox.take<protocol::Register>();
  ASSERT_TRUE(reg);
  const auto offer = std::find_if(reg->models.begin(), reg->models.end(),
                                  [](const auto& m) { return m.id == "flotilla-tiny"; });
  ASSERT_NE(offer, reg->models.end());
  EXPECT_EQ(offer->resident_bytes, (*loaded)->info().resident_bytes);
  EXPECT_GT(offer->resident_bytes, 7u << 20);  // its weights alone
  EXPECT_GT(offer->state_fixed_bytes, 0u);
  ASSERT_GE(offer->state_classes.size(), 2u);  // full attention and windows
  const auto cost = [&](std::uint64_t length) {
    std::uint64_t bytes = offer->state_fixed_bytes;
    for (const auto& c : offer->state_classes) {
      bytes += c.bytes_per_token * (c.max_tokens == 0 ? length : std::min(c.max_tokens, length));
    }
    return bytes;
  };
  for (const std::int64_t length : {1, 40, 600, 4'000}) {
    EXPECT_EQ(cost(static_cast<std::uint64_t>(length)), (*loaded)->info().state_cost.bytes(length));
  }

  const JobId job = protocol::random_job_id();
  const std::string body = R"({"model": "flotilla-tiny", "max_tokens": 700, "ignore_eos": true,
      "messages": [{"role": "user", "content": "Tell me a story about a fox."}]})";
  coordinator_.send(protocol::Prepare{.model = "flotilla-tiny",
                                      .request = "r",
                                      .tenant = "t",
                                      .choice = 0,
                                      .job = api::to_job_json(chat_request(body))},
                    job, 1);
  const auto lease = coordinator_.inbox.take<protocol::Lease>(job);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->granted_tokens, 700u);
  EXPECT_EQ(lease->granted_bytes, cost(lease->prompt_tokens + lease->granted_tokens));
  coordinator_.send(protocol::Start{}, job, 1);
  std::uint64_t used = 0;
  while (!coordinator_.inbox.take<protocol::Finish>(job, 0ms)) {
    used = std::max(used, (*loaded)->stats().kv_bytes_used);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GT(used, 0u);
  EXPECT_LE(used, lease->granted_bytes);
}

TEST_F(AgentTest, AnIdleLinkStaysUpOnHeartbeatsAlone) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  std::this_thread::sleep_for(900ms);  // more than twice dead_after
  EXPECT_EQ(coordinator_.num_connections, 1);
  EXPECT_TRUE(agent_->connected());
}

TEST_F(AgentTest, ACoordinatorThatFallsSilentIsLeftAndDialledAgain) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  coordinator_.answers_heartbeats = false;
  const auto silent_since = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] { return coordinator_.num_connections >= 2; }));
  EXPECT_GE(std::chrono::steady_clock::now() - silent_since, 300ms);
  coordinator_.answers_heartbeats = true;
  EXPECT_TRUE(wait_registered(2));
}

TEST_F(AgentTest, ALostLinkEndsItsJobsAndIsDialledAgain) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  const JobId job = run("slow");
  ASSERT_TRUE(coordinator_.inbox.take<protocol::Tokens>(job));
  EXPECT_EQ(agent_->num_jobs(), 1u);
  coordinator_.cut();
  ASSERT_TRUE(wait_registered(2));
  EXPECT_TRUE(eventually([&] { return (*models_.find("demo"))->stats().num_running == 0; }));
  EXPECT_EQ(agent_->num_jobs(), 0u);
  const JobId next = run("hi");
  EXPECT_TRUE(coordinator_.inbox.take<protocol::Finish>(next));
}

TEST_F(AgentTest, KeepsDiallingWhileTheCoordinatorIsAway) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  const std::uint16_t port = coordinator_.port();
  coordinator_.forget_session();
  coordinator_.close_listener();
  EXPECT_TRUE(eventually([&] { return !agent_->connected(); }));
  std::this_thread::sleep_for(150ms);
  coordinator_.listen(port);
  EXPECT_TRUE(wait_registered(2));
}

TEST_F(AgentTest, ATamperedOrReplayedFrameEndsTheConnectionNotTheNode) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  std::string frame = coordinator_.seal(protocol::HeartbeatAck{.sequence = 1});
  std::string tampered = frame;
  tampered.back() = static_cast<char>(tampered.back() ^ 1);
  coordinator_.send_raw(tampered);
  ASSERT_TRUE(wait_registered(2));
  frame = coordinator_.seal(protocol::HeartbeatAck{.sequence = 1});
  coordinator_.send_raw(frame);
  coordinator_.send_raw(frame);
  ASSERT_TRUE(wait_registered(3));
  const JobId job = run("hi");
  EXPECT_TRUE(coordinator_.inbox.take<protocol::Finish>(job));
  std::lock_guard lock(mutex_);
  EXPECT_TRUE(rejections_.empty());
}

TEST_F(AgentTest, RefusalsByEitherSideHaveTheirNames) {
  {
    SCOPED_TRACE("uninvited");
    coordinator_.known.reset();
    start_agent();
    EXPECT_EQ(wait_rejection(), protocol::LinkFault::kUninvitedNode);
    agent_.reset();
    rejections_.clear();
  }
  {
    SCOPED_TRACE("wrong coordinator key");
    coordinator_.known = protocol::KnownNode{
        "alpha", protocol::Identity::from_seed(*credentials_.invite_secret).public_key(),
        std::nullopt, false};
    credentials_.coordinator_key = protocol::Identity::generate().public_key();
    start_agent();
    EXPECT_EQ(wait_rejection(), protocol::LinkFault::kWrongCoordinatorKey);
    agent_.reset();
    rejections_.clear();
  }
  {
    SCOPED_TRACE("bad invite, which is all that a stranger has");
    credentials_ = coordinator_.credentials(node_);
    credentials_.invite_secret = protocol::random_seed();
    start_agent();
    EXPECT_EQ(wait_rejection(), protocol::LinkFault::kUninvitedNode);
    agent_.reset();
    rejections_.clear();
  }
  {
    SCOPED_TRACE("name bound to another key");
    credentials_ = coordinator_.credentials(node_);
    coordinator_.known->bound_key = protocol::Identity::generate().public_key();
    start_agent();
    EXPECT_EQ(wait_rejection(), protocol::LinkFault::kWrongNodeKey);
  }
}

TEST_F(AgentTest, ACoordinatorThatNeverRegistersIsGivenUp) {
  coordinator_.swallow_register = true;
  start_agent();
  ASSERT_TRUE(eventually([&] { return coordinator_.num_connections >= 2; }));
  coordinator_.swallow_register = false;
  EXPECT_TRUE(wait_registered());
}

TEST_F(AgentTest, DrainFinishesRunningJobsAndRefusesNewOnes) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  const JobId running = run("short");
  ASSERT_TRUE(eventually([&] { return agent_->num_jobs() == 1; }));
  std::promise<bool> drained;
  agent_->drain(5s, [&](bool all_ended) { drained.set_value(all_ended); });
  ASSERT_TRUE(coordinator_.inbox.take<protocol::Drain>());
  const JobId late = prepare("hi");
  const auto refuse = coordinator_.inbox.take<protocol::Refuse>(late);
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->reason, protocol::RefuseReason::kDraining);
  auto future = drained.get_future();
  ASSERT_EQ(future.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(future.get());
  EXPECT_TRUE(coordinator_.inbox.take<protocol::Finish>(running));
}

TEST_F(AgentTest, DrainSaysSoWhenTheDeadlineCameFirst) {
  start_agent();
  ASSERT_TRUE(wait_registered());
  const JobId running = run("slow");
  ASSERT_TRUE(coordinator_.inbox.take<protocol::Tokens>(running));
  std::promise<bool> drained;
  agent_->drain(50ms, [&](bool all_ended) { drained.set_value(all_ended); });
  auto future = drained.get_future();
  ASSERT_EQ(future.wait_for(5s), std::future_status::ready);
  EXPECT_FALSE(future.get());
}

TEST_F(AgentTest, LoadsAndUnloadsOnOrderAndTellsTheNewList) {
  ASSERT_TRUE(models_.add_source({"later", "/models/later"}).ok());
  start_agent();
  ASSERT_TRUE(wait_registered());
  EXPECT_FALSE(coordinator_.inbox.take<protocol::Register>()->models.at(1).loaded);
  coordinator_.send(protocol::Load{.model = "later"});
  EXPECT_EQ(coordinator_.inbox.take<protocol::ModelStatus>()->state,
            protocol::ModelState::kLoading);
  EXPECT_EQ(coordinator_.inbox.take<protocol::ModelStatus>()->state, protocol::ModelState::kLoaded);
  EXPECT_TRUE(eventually([&] {
    const auto reg = coordinator_.inbox.take<protocol::Register>({}, 100ms);
    return reg && reg->models.at(1).loaded;
  }));
  coordinator_.send(protocol::Unload{.model = "later"});
  EXPECT_EQ(coordinator_.inbox.take<protocol::ModelStatus>()->state,
            protocol::ModelState::kUnloaded);
  coordinator_.send(protocol::Load{.model = "nowhere"});
  const auto failed = coordinator_.inbox.take<protocol::ModelStatus>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->state, protocol::ModelState::kFailed);
  EXPECT_EQ(failed->error->code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace flotilla::provider
