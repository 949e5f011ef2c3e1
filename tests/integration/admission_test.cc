// What the router believes against what nodes know: real nodes' admission behind the dispatcher,
// whose picture of them is old and partly wrong. Every disagreement must be a typed refusal and
// another node's work, never an error that a client sees.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "flotilla/base/overloaded.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/provider/job_runner.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla {
namespace {

using namespace std::chrono_literals;
using coordinator::Dispatcher;
using provider::AttemptKey;

// Two answers at a time and one that waits; a few milliseconds each.
constexpr std::string_view kScript = R"({"model": "demo", "max_concurrent": 2, "max_waiting": 2,
  "rules": [{"delay_ms": 2, "steps": ["one ", "two ", "three ", {"echo": "user"}, {"end": true}]}]})";
constexpr std::uint32_t kBelievedSlots = 8;

void on(const net::Strand& strand, const std::function<void()>& task) {
  std::promise<void> done;
  strand.post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// A node's admission and engine, without a socket; what it says arrives late.
class Node final : public coordinator::NodeLink, public std::enable_shared_from_this<Node> {
 public:
  Node(net::IoRuntime& io, const net::Strand& core, Dispatcher& dispatcher, const Clock& clock,
       std::string name)
      : strand_(io),
        core_(core),
        dispatcher_(dispatcher),
        name_(std::move(name)),
        id_{"id-" + name_},
        models_([](const provider::ModelSource&) { return provider::scripted(kScript); }, clock),
        runner_(std::make_shared<provider::JobRunner>(
            strand_, models_, workers_, clock, provider::JobOptions{.max_waiting = 1},
            [this](protocol::ProviderMessage message, const AttemptKey& key) {
              if (std::holds_alternative<protocol::Refuse>(message)) ++num_refusals;
              tell(std::move(message), key.job, key.attempt);
            },
            [] {})) {
    EXPECT_TRUE(models_.add_source({.name = "demo", .folder = "/demo"}).ok());
    EXPECT_TRUE(models_.load_and_wait("demo").ok());
  }

  void join() {
    models_.on_change([weak = weak_from_this()](const provider::ModelRecord& record) {
      const auto self = weak.lock();
      if (!self) return;
      protocol::ModelStatus status;
      status.model = record.name;
      status.state =
          record.state == provider::ModelState::kLoaded    ? protocol::ModelState::kLoaded
          : record.state == provider::ModelState::kLoading ? protocol::ModelState::kLoading
          : record.state == provider::ModelState::kFailed  ? protocol::ModelState::kFailed
                                                           : protocol::ModelState::kUnloaded;
      // Bad news is lost: the router finds out by itself.
      if (status.state != protocol::ModelState::kUnloaded) self->tell(status, {}, 0);
    });
    protocol::Register message;
    protocol::ModelOffer offer;
    offer.id = "demo";
    offer.max_concurrent = kBelievedSlots;  // wrong: it takes three
    offer.context_length = 4096;
    offer.model_digest = "d";
    offer.numerics_id = "n";
    message.models = {offer};
    core_.post([self = shared_from_this(), message] {
      self->dispatcher_.node_joined({self->id_, self->name_, self}, message);
    });
  }
  void heartbeat() {
    strand_.post([self = shared_from_this()] {
      protocol::Heartbeat message;
      message.sequence = ++self->sequence_;
      message.draining = self->draining_;
      message.slots = self->runner_->loads();
      self->tell(message, {}, 0);
    });
  }
  void unload() { (void)models_.unload("demo"); }
  void load() {
    models_.load("demo", [](Status) {});
  }
  // Nobody is told before the next heartbeat.
  void set_draining(bool draining) {
    strand_.post([self = shared_from_this(), draining] {
      self->draining_ = draining;
      self->runner_->set_draining(draining);
    });
  }
  void stop() {
    models_.on_change(nullptr);
    on(strand_, [&] { runner_->drop_all(); });
  }

  void send(protocol::CoordinatorMessage message, const JobId& job,
            std::uint32_t attempt) override {
    strand_.post([self = shared_from_this(), message = std::move(message),
                  key = AttemptKey{job, attempt}] {
      std::visit(Overloaded{[&](const protocol::Start& m) { self->runner_->on_start(key, m); },
                            [&](const protocol::Cancel&) { self->runner_->on_cancel(key); },
                            [&](const protocol::Load&) { self->load(); },
                            [&](const protocol::Unload&) { self->unload(); }, [](const auto&) {}},
                 message);
    });
  }
  void send_prepare(std::shared_ptr<const protocol::Prepare> prepare, std::uint32_t choice,
                    const JobId& job, std::uint32_t attempt) override {
    strand_.post([self = shared_from_this(), prepare, choice, key = AttemptKey{job, attempt}] {
      protocol::Prepare own = *prepare;
      own.choice = choice;
      self->runner_->on_prepare(key, std::move(own));
    });
  }
  void close(Error) override {}
  std::size_t queued_bytes() const override { return 0; }

  std::atomic<int> num_refusals{0};

 private:
  void tell(protocol::ProviderMessage message, const JobId& job, std::uint32_t attempt) {
    core_.post([self = shared_from_this(), message = std::move(message), job, attempt]() mutable {
      self->dispatcher_.node_message(self->id_, self.get(), job, attempt, std::move(message));
    });
  }

  const net::Strand strand_;
  const net::Strand core_;
  Dispatcher& dispatcher_;
  const std::string name_;
  const ProviderId id_;
  provider::ModelManager models_;
  provider::WorkerPool workers_{1, 64};
  std::shared_ptr<provider::JobRunner> runner_;
  std::uint64_t sequence_ = 0;
  bool draining_ = false;
};

struct Answer {
  std::string text;
  std::optional<Error> error;
};

TEST(Admission, ADisagreementIsARefusalAndAnotherNodesWorkNeverAnErrorOfTheClient) {
  constexpr int kRequests = 600, kAtOnce = 40;
  net::IoRuntime io(3);
  const SystemClock clock;
  coordinator::Metrics metrics;
  coordinator::DispatchLimits limits;
  limits.queue_timeout = 60s;
  const net::Strand core(io);
  Dispatcher dispatcher(clock, metrics, limits, [] {});
  std::vector<std::shared_ptr<Node>> nodes;
  for (const char* name : {"a", "b", "c"}) {
    nodes.push_back(std::make_shared<Node>(io, core, dispatcher, clock, name));
    nodes.back()->join();
  }

  std::mutex mutex;
  std::map<int, Answer> answers;  // guarded by mutex
  std::atomic<int> num_done{0};
  const auto ask = [&](int i) {
    const std::string user = "request " + std::to_string(i);
    auto prepare = std::make_shared<protocol::Prepare>();
    prepare->model = "demo";
    prepare->request = user;
    prepare->tenant = "t";
    prepare->job = api::to_job_json(provider::chat_request(
        R"({"model":"demo","messages":[{"role":"user","content":")" + user + "\"}]}"));
    coordinator::Admission admission;
    admission.id = RequestId{static_cast<std::uint64_t>(i) + 1};
    admission.name = user;
    admission.stream = true;
    admission.prepare = prepare;
    admission.sink = [&, i](serving::ChatEvent event) {
      std::lock_guard lock(mutex);
      for (const auto& delta : event.deltas) answers[i].text += delta.text;
      if (event.finish) {
        answers[i].error = event.finish->error;
        ++num_done;
      }
      return true;
    };
    coordinator::RouteAsk route;
    route.prompt_bytes = 100;
    route.prefixes = {{static_cast<std::uint64_t>(i % 7), 50},
                      {static_cast<std::uint64_t>(i), 100}};
    admission.ask = std::make_shared<coordinator::RouteAsk>(route);
    core.post([&dispatcher, held = std::make_shared<coordinator::Admission>(std::move(admission))] {
      dispatcher.submit(std::move(*held));
    });
  };

  std::mt19937 random(11);
  int num_asked = 0;
  const auto end = clock.now() + 100s;
  for (int round = 0; num_done < kRequests && clock.now() < end; ++round) {
    while (num_asked < kRequests && num_asked - num_done < kAtOnce) ask(num_asked++);
    Node& node = *nodes[random() % nodes.size()];
    // Never all of them at once: somebody must be able to answer.
    switch (random() % 8) {
      case 0:
        node.unload();
        break;
      case 1:
        node.load();
        break;
      case 2:
        node.set_draining(true);
        break;
      default:
        node.set_draining(false);
        break;
    }
    if (round % 10 == 0) {
      for (const auto& each : nodes) each->heartbeat();
    }
    core.post([&] { dispatcher.tick(); });
    std::this_thread::sleep_for(5ms);
  }
  for (const auto& node : nodes) {
    node->set_draining(false);
    node->load();
    node->heartbeat();
  }
  EXPECT_TRUE(provider::eventually(
      [&] {
        core.post([&] { dispatcher.tick(); });
        std::this_thread::sleep_for(10ms);
        return num_done == kRequests;
      },
      60s));

  int num_refusals = 0;
  for (const auto& node : nodes) num_refusals += node->num_refusals;
  RecordProperty("refusals", num_refusals);
  std::printf("%d requests, %d refusals, no error\n", kRequests, num_refusals);
  // The test is of no use without disagreements.
  EXPECT_GT(num_refusals, kRequests / 10);
  {
    std::lock_guard lock(mutex);
    EXPECT_EQ(answers.size(), static_cast<std::size_t>(kRequests));
    for (const auto& [i, answer] : answers) {
      EXPECT_FALSE(answer.error) << i << ": " << to_string(*answer.error);
      EXPECT_EQ(answer.text, "one two three request " + std::to_string(i));
    }
  }
  on(core, [&] {
    EXPECT_EQ(dispatcher.table().num_requests(), 0u);
    dispatcher.fail_all({ErrorCode::kUnavailable, "the test is over"});
  });
  for (const auto& node : nodes) node->stop();
  on(core, [&] { dispatcher.drop_nodes(); });
  io.stop();
}

}  // namespace
}  // namespace flotilla
