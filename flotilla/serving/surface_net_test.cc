// The surface over the real network layer: threads, strands and timers as in the programs.
#include <atomic>
#include <condition_variable>
#include <thread>

#include "flotilla/net/http.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/serving/http_surface.h"
#include "flotilla/serving/replies.h"
#include "flotilla/serving/testing.h"
#include "flotilla/serving/testing_client.h"

namespace flotilla::serving {
namespace {

using namespace std::chrono_literals;

// Emits `num_tokens` words per choice from a thread of its own, waiting while paused.
class ThreadBackend final : public ChatBackend {
 public:
  ThreadBackend() : worker_([this] { work(); }) {}
  ~ThreadBackend() override { stop(); }
  // The sinks of its jobs hold sessions with timers: they go while there is an I/O runtime.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
    std::vector<std::shared_ptr<Job>> jobs;
    {
      std::lock_guard lock(mutex_);
      jobs.swap(jobs_);
    }
    for (auto& job : jobs) job->on_event = nullptr;
  }
  std::vector<ModelEntry> models() const override { return {{"m", 0, "t", 0}}; }
  Result<Caller> authenticate(std::optional<std::string_view>) const override { return Caller{}; }
  bool ready(std::string*) const override { return true; }
  std::unique_ptr<ChatStream> start(api::ChatRequest request, const Caller&,
                                    std::function<bool(ChatEvent)> on_event) override {
    auto job = std::make_shared<Job>();
    job->on_event = std::move(on_event);
    job->num_tokens = request.max_tokens.value_or(10);
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(job);
    }
    changed_.notify_all();
    return std::make_unique<Stream>(*this, job);
  }
  bool wait_for_cancel() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [this] { return num_cancelled_ > 0; });
  }
  bool wait_for_pause() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [this] { return num_paused_ > 0; });
  }

 private:
  struct Job {
    std::function<bool(ChatEvent)> on_event;
    std::int64_t num_tokens = 0, sent = 0;
    bool paused = false, cancelled = false;
  };
  class Stream final : public ChatStream {
   public:
    Stream(ThreadBackend& backend, std::shared_ptr<Job> job)
        : backend_(backend), job_(std::move(job)) {}
    ~Stream() override { cancel(); }
    void cancel() override {
      std::lock_guard lock(backend_.mutex_);
      if (job_->sent < job_->num_tokens && !job_->cancelled) ++backend_.num_cancelled_;
      job_->cancelled = true;
      backend_.changed_.notify_all();
    }
    void resume() override {
      std::lock_guard lock(backend_.mutex_);
      job_->paused = false;
      backend_.changed_.notify_all();
    }

   private:
    ThreadBackend& backend_;
    std::shared_ptr<Job> job_;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (std::size_t next = 0;;) {
      changed_.wait(lock, [&] { return stopping_ || runnable(); });
      if (stopping_) return;
      auto job = jobs_[next++ % jobs_.size()];
      if (job->paused || job->cancelled || job->sent == job->num_tokens) continue;
      ChatEvent event = content("w" + std::to_string(job->sent) + " ", {1});
      if (++job->sent == job->num_tokens) {
        event.finish = ChatFinish{
            .reason = ChatFinish::Reason::kStop, .error = {}, .usage = {1, job->num_tokens, 0, 0}};
      }
      job->paused = true;  // a resume() during the callback must win
      lock.unlock();
      const bool room = job->on_event(std::move(event));
      lock.lock();
      if (room) {
        job->paused = false;
      } else {
        ++num_paused_;
        changed_.notify_all();
      }
    }
  }
  bool runnable() const {
    for (const auto& job : jobs_) {
      if (!job->paused && !job->cancelled && job->sent < job->num_tokens) return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  int num_cancelled_ = 0;                   // guarded by mutex_
  int num_paused_ = 0;                      // guarded by mutex_
  std::thread worker_;
};

class NetSurface : public testing::Test {
 protected:
  ~NetSurface() override {
    server_.reset();
    surface_.reset();
    backend_.stop();
  }
  void start() {
    surface_ = std::make_unique<HttpSurface>(backend_, clock_, make_net_lanes(io_), options_);
    server_ = std::make_unique<net::HttpServer>(io_, server_options_, surface_->handler(),
                                                protocol_error_reply);
    server_->set_head_check(
        [this](const net::HttpRequest& head) { return surface_->check_head(head); });
    const Status status = server_->start();
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  std::string post(const std::string& members) {
    return http_post("/v1/chat/completions",
                     R"({"model":"m","messages":[{"role":"user","content":"x"}])" + members + "}");
  }

  SystemClock clock_;
  ThreadBackend backend_;
  SurfaceOptions options_;
  net::HttpServerOptions server_options_;
  net::IoRuntime io_{2};
  std::unique_ptr<HttpSurface> surface_;
  std::unique_ptr<net::HttpServer> server_;
};

std::string words(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "w" + std::to_string(i) + " ";
  return out;
}

TEST_F(NetSurface, ManyStreamsAtOnceEachGetTheirOwnAnswer) {
  start();
  std::vector<std::thread> clients;
  std::atomic<int> good = 0;
  for (int i = 0; i < 32; ++i) {
    clients.emplace_back([&, i] {
      const int count = 20 + i;
      TestClient client(server_->port());
      client.send(post(R"(,"stream":true,"max_tokens":)" + std::to_string(count)));
      const std::string body = client.read_body();
      if (joined(body) == words(count) && body.ends_with("data: [DONE]\n\n")) ++good;
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(good, 32);
}

TEST_F(NetSurface, AClientThatHangsUpCancelsItsJob) {
  start();
  {
    TestClient client(server_->port());
    client.send(post(R"(,"stream":true,"max_tokens":100000000)"));
    client.read_some();
  }
  EXPECT_TRUE(backend_.wait_for_cancel());
}

TEST_F(NetSurface, AReaderThatStopsPausesItsJobAndLosesNothing) {
  server_options_.write_queue_bytes = 16 << 10;
  start();
  TestClient client(server_->port(), /*receive_buffer=*/4096);
  constexpr int kCount = 60'000;
  client.send(post(R"(,"stream":true,"max_tokens":)" + std::to_string(kCount)));
  ASSERT_TRUE(backend_.wait_for_pause());
  EXPECT_EQ(joined(client.read_body()), words(kCount));
}

TEST_F(NetSurface, StoppingEndsWhatRuns) {
  start();
  TestClient client(server_->port());
  client.send(post(R"(,"stream":true,"max_tokens":100000000)"));
  client.read_some();
  std::thread reader([&] { client.read_body(); });
  surface_.reset();
  server_.reset();
  reader.join();
  EXPECT_TRUE(backend_.wait_for_cancel());
}

}  // namespace
}  // namespace flotilla::serving
