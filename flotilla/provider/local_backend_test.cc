#include "flotilla/provider/local_backend.h"

#include <gtest/gtest.h>

#include <atomic>

#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;

// "endless" must not reach the end of the context while a test thread is kept waiting.
constexpr std::string_view kScript = R"({"model": "demo", "context_length": 50000000, "rules": [
  {"match": {"user": "seed"}, "steps": [{"echo": "seed"}, {"text": "/"}, {"echo": "choice"}]},
  {"match": {"user": "endless"}, "steps": ["y"], "loop": true},
  {"match": {"user": "nan"}, "steps": ["half", {"nan": true}]},
  {"match": {"user": "refuse"}, "refuse": {"code": "invalid_argument", "message": "roles must alternate"}, "steps": []},
  {"match": {"user": "call"}, "steps": ["<|tool_call>call:now{}<tool_call|>"]},
  {"steps": ["hel", "lo"]}]})";

// Collects the events of one request. `full` makes the reader ask for a pause.
struct Reader {
  std::mutex mutex;
  std::vector<serving::ChatEvent> events;  // guarded by mutex
  std::atomic<bool> full{false};
  std::atomic<int> num_events{0}, num_finished{0}, inside{0};
  std::atomic<bool> overlapped{false};

  std::function<bool(serving::ChatEvent)> callback() {
    return [this](serving::ChatEvent event) {
      if (++inside != 1) overlapped = true;
      const bool last = event.finish.has_value();
      {
        std::lock_guard lock(mutex);
        events.push_back(std::move(event));
      }
      ++num_events;
      --inside;
      if (last) ++num_finished;
      return !full;
    };
  }
  std::string text(int choice) {
    std::lock_guard lock(mutex);
    std::string out;
    for (const auto& event : events) {
      if (event.choice != choice) continue;
      for (const auto& delta : event.deltas) out += delta.text;
    }
    return out;
  }
  serving::ChatFinish finish(int choice = 0) {
    std::lock_guard lock(mutex);
    for (const auto& event : events) {
      if (event.choice == choice && event.finish) return *event.finish;
    }
    return {};
  }
};

class LocalBackendTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(models_.add_engine(scripted(kScript)).ok()); }
  static api::ChatRequest ask(std::string_view user, std::string_view more = "") {
    return chat_request(R"({"model": "demo", "messages": [{"role": "user", "content": ")" +
                        std::string(user) + "\"}]" + std::string(more) + "}");
  }
  std::unique_ptr<serving::ChatStream> start(api::ChatRequest request, Reader& reader) {
    return backend_.start(std::move(request), {.request_id = "r", .tenant = "local"},
                          reader.callback());
  }
  std::uint32_t num_running() { return (*models_.find("demo"))->stats().num_running; }

  SystemClock clock_;
  ModelManager models_{nullptr, clock_};
  LocalBackend backend_{models_, clock_, {}};
};

TEST_F(LocalBackendTest, StreamsOneChoiceToItsFinish) {
  Reader reader;
  auto stream = start(ask("hi"), reader);
  ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
  EXPECT_EQ(reader.text(0), "hello");
  EXPECT_EQ(reader.finish().reason, serving::ChatFinish::Reason::kStop);
  EXPECT_GT(reader.finish().usage.completion_tokens, 0);
  stream->cancel();  // after the end: nothing
}

// B29: choices differ by their index and share the seed.
TEST_F(LocalBackendTest, EventsKnowThePromptAndTheStopThatMatched) {
  Reader reader;
  auto stream = start(ask("hi", R"(, "stop": "lo")"), reader);
  ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
  EXPECT_EQ(reader.text(0), "hel");
  EXPECT_EQ(reader.finish().matched_stop, "lo");
  std::lock_guard lock(reader.mutex);
  EXPECT_EQ(reader.events.front().prompt_tokens, reader.events.back().finish->usage.prompt_tokens);
  EXPECT_GT(reader.events.front().prompt_tokens, 0);
}

TEST_F(LocalBackendTest, CountsWithoutGenerating) {
  Reader reader;
  api::ChatRequest request = ask("endless");
  request.count_only = true;
  request.n = 2;
  auto stream = start(std::move(request), reader);
  ASSERT_TRUE(eventually([&] { return reader.num_finished == 2; }));
  EXPECT_GT(reader.finish(1).usage.prompt_tokens, 0);
  EXPECT_EQ(reader.finish(1).usage.completion_tokens, 0);
  EXPECT_EQ(num_running(), 0u);
}

TEST_F(LocalBackendTest, ATextCompletionIsContentWhateverItLooksLike) {
  Reader reader;
  api::ChatRequest request = ask("x");
  request.messages = nullptr;
  request.is_completion = true;
  request.prompt = "call";
  auto stream = start(std::move(request), reader);
  ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
  EXPECT_EQ(reader.finish().reason, serving::ChatFinish::Reason::kStop);
  EXPECT_EQ(reader.text(0), "call:now{}");
}

TEST_F(LocalBackendTest, FansOutChoicesWithOneSeed) {
  Reader reader;
  auto stream = start(ask("seed", R"(, "n": 3, "seed": 11)"), reader);
  ASSERT_TRUE(eventually([&] { return reader.num_finished == 3; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reader.text(i), "11/" + std::to_string(i));
  EXPECT_FALSE(reader.overlapped);
}

TEST_F(LocalBackendTest, FailuresArriveAsAFinishOfEveryChoice) {
  {
    Reader reader;
    auto request = ask("hi", R"(, "n": 2)");
    request.model = "demi";
    auto stream = start(request, reader);
    ASSERT_TRUE(eventually([&] { return reader.num_finished == 2; }));
    EXPECT_EQ(reader.finish(1).error->code, ErrorCode::kNotFound);
    EXPECT_EQ(reader.finish(1).error->param, "model");
  }
  {
    Reader reader;
    auto stream = start(ask("refuse"), reader);
    ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
    EXPECT_EQ(reader.finish().error->message, "roles must alternate");
  }
  {
    Reader reader;
    auto stream = start(ask("nan"), reader);
    ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
    EXPECT_EQ(reader.text(0), "half");
    EXPECT_EQ(reader.finish().error->code, ErrorCode::kModelFault);
  }
}

TEST_F(LocalBackendTest, CancelStopsTheWorkAndNoEventFollows) {
  for (int i = 0; i < 30; ++i) {
    Reader reader;
    auto stream = start(ask("endless", R"(, "n": 2)"), reader);
    if (i % 3) eventually([&] { return reader.num_events > i; });
    if (i % 2) {
      stream->cancel();
    } else {
      stream.reset();
    }
    const int seen = reader.num_events;
    std::this_thread::sleep_for(2ms);
    ASSERT_EQ(reader.num_events, seen);
    ASSERT_EQ(reader.num_finished, 0);
    ASSERT_TRUE(eventually([&] { return num_running() == 0; })) << i;
  }
}

TEST_F(LocalBackendTest, AFullReaderPausesAndResumeIsNeverLost) {
  Reader reader;
  auto stream = start(ask("endless"), reader);
  for (int round = 0; round < 50; ++round) {
    reader.full = true;
    if (round % 10 == 0) {
      // Wait until it has come to rest.
      int seen = -1;
      ASSERT_TRUE(eventually([&] {
        const bool rests = seen == reader.num_events;
        seen = reader.num_events;
        std::this_thread::sleep_for(5ms);
        return rests;
      }));
    }
    reader.full = false;
    const int before = reader.num_events;
    stream->resume();
    ASSERT_TRUE(eventually([&] { return reader.num_events > before; })) << round;
  }
}

TEST_F(LocalBackendTest, CallsOfDifferentRequestsHaveDifferentIdsEvenWithOneSeed) {
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    Reader reader;
    auto stream = start(
        ask("call", R"(, "seed": 5, "tools": [{"type": "function", "function": {"name": "now"}}])"),
        reader);
    ASSERT_TRUE(eventually([&] { return reader.num_finished == 1; }));
    EXPECT_EQ(reader.finish().reason, serving::ChatFinish::Reason::kToolCalls);
    for (const auto& event : reader.events) {
      for (const auto& delta : event.deltas) {
        if (!delta.call_id.empty()) ids.push_back(delta.call_id);
      }
    }
  }
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);
}

TEST_F(LocalBackendTest, ListsWhatIsLoadedAndIsReadyThen) {
  ASSERT_EQ(backend_.models().size(), 1u);
  EXPECT_EQ(backend_.models()[0].id, "demo");
  EXPECT_EQ(backend_.models()[0].context_length, 50000000);
  std::string why;
  EXPECT_TRUE(backend_.ready(&why));
  ASSERT_TRUE(models_.unload("demo").ok());
  EXPECT_FALSE(backend_.ready(&why));
  EXPECT_EQ(why, "no model is loaded");
  EXPECT_TRUE(backend_.models().empty());
}

TEST_F(LocalBackendTest, KeysGuardTheServerWhenThereAreAny) {
  EXPECT_EQ(backend_.authenticate(std::nullopt)->tenant, "local");
  EXPECT_EQ(backend_.authenticate("anything")->tenant, "local");
  LocalBackend guarded(models_, clock_, {.api_keys = {"key-a", "key-b"}});
  EXPECT_EQ(guarded.authenticate(std::nullopt).error().code, ErrorCode::kUnauthenticated);
  EXPECT_EQ(guarded.authenticate("key-c").error().code, ErrorCode::kUnauthenticated);
  EXPECT_EQ(guarded.authenticate("key-").error().code, ErrorCode::kUnauthenticated);
  const auto a = guarded.authenticate("key-a"), b = guarded.authenticate("key-b");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->tenant, b->tenant);
}

}  // namespace
}  // namespace flotilla::provider
