#include "flotilla/net/io_runtime.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstdint>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/net/asio_internal.inc"

namespace flotilla::net {

namespace asio = boost::asio;

IoRuntime::IoRuntime(int num_threads) : impl_(std::make_unique<Impl>()) {
  // A write to a connection that the peer has reset must be an error code, not the end of the
  // process.
  std::signal(SIGPIPE, SIG_IGN);
  for (int i = 0; i < std::max(1, num_threads); ++i) {
    impl_->threads.emplace_back([context = &impl_->context] {
      try {
        context->run();
      } catch (const std::exception& e) {
        FLOTILLA_CHECK(false, e.what());
      }
    });
  }
}

IoRuntime::~IoRuntime() {
  stop();
  for (std::thread& thread : impl_->threads) thread.join();
}

void IoRuntime::stop() {
  impl_->work.reset();
  impl_->context.stop();
}

void IoRuntime::post(std::function<void()> task) { asio::post(impl_->context, std::move(task)); }

Strand::Strand(IoRuntime& io) : impl_(std::make_shared<Impl>(io.impl().context)) {}

void Strand::post(std::function<void()> task) const { asio::post(impl_->strand, std::move(task)); }

bool Strand::running_in_this_thread() const { return impl_->strand.running_in_this_thread(); }

struct Timer::Impl : std::enable_shared_from_this<Timer::Impl> {
  explicit Impl(const Strand& s) : strand(s.impl()), timer(strand->executor) {}

  void after(std::chrono::milliseconds delay, std::function<void()> task) {
    const std::uint64_t mine = ++generation;
    const auto deadline = std::chrono::steady_clock::now() + delay;
    asio::dispatch(strand->strand,
                   [self = shared_from_this(), mine, deadline, task = std::move(task)]() mutable {
                     if (mine != self->generation) return;
                     self->timer.expires_at(deadline);
                     self->timer.async_wait([self, mine, task = std::move(task)](auto error) {
                       if (!error && mine == self->generation) task();
                     });
                   });
  }

  void cancel() {
    ++generation;
    // Frees the task soon; that it does not run is settled by the generation.
    asio::dispatch(strand->strand, [self = shared_from_this(), mine = generation.load()] {
      if (mine == self->generation) self->timer.cancel();
    });
  }

  std::shared_ptr<Strand::Impl> strand;
  asio::steady_timer timer;  // touched on the strand only
  std::atomic<std::uint64_t> generation{0};
};

Timer::Timer(const Strand& strand) : impl_(std::make_shared<Impl>(strand)) {}
Timer::~Timer() { impl_->cancel(); }
void Timer::after(std::chrono::milliseconds delay, std::function<void()> task) {
  impl_->after(delay, std::move(task));
}
void Timer::cancel() { impl_->cancel(); }

struct SignalWatcher::Impl : std::enable_shared_from_this<SignalWatcher::Impl> {
  Impl(IoRuntime& io, std::function<void(int)> h)
      : strand(io), signals(strand.impl()->executor, SIGINT, SIGTERM), handler(std::move(h)) {
    // Whoever started this program with nohup has asked that it survives.
    struct sigaction hangup {};
    const bool ignored = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    if (!ignored) signals.add(SIGHUP);
  }

  void wait() {
    signals.async_wait([self = shared_from_this()](auto error, int number) {
      if (error || !self->handler) return;
      if (number != SIGHUP) self->ending.asked = true;
      self->handler(number);
      self->wait();
    });
  }

  // A program that was asked to stop, and ends, is not to be cut by a second request that comes
  // when nobody listens any more.
  struct Ending {
    ~Ending() {
      if (!asked) return;
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
    }
    bool asked = false;
  };

  Strand strand;
  Ending ending;  // destroyed after `signals`, which restores what was before
  asio::signal_set signals;
  std::function<void(int)> handler;
};

SignalWatcher::SignalWatcher(IoRuntime& io, std::function<void(int)> handler)
    : impl_(std::make_shared<Impl>(io, std::move(handler))) {
  impl_->strand.post([impl = impl_] { impl->wait(); });
}

SignalWatcher::~SignalWatcher() {
  impl_->strand.post([impl = impl_] {
    impl->handler = nullptr;
    impl->signals.cancel();
  });
}

}  // namespace flotilla::net
