#include "flotilla/provider/engine_tap.h"

#include <utility>

namespace flotilla::provider {

EngineTap::EngineTap(const net::Strand& strand, std::shared_ptr<engine::TextEngine> engine,
                     std::function<void(engine::TokenEvent)> deliver)
    : strand_(strand), engine_(std::move(engine)), deliver_(std::move(deliver)) {}

engine::EventSink EngineTap::sink() {
  return [self = shared_from_this()](engine::TokenEvent event) {
    return self->on_event(std::move(event));
  };
}

bool EngineTap::on_event(engine::TokenEvent event) {
  const bool last = event.finish.has_value();
  bool hold = false;
  {
    std::lock_guard lock(mutex_);
    request_ = event.request;  // the first event may come before submit() has returned
    has_request_ = true;
    ++num_undelivered_;
    hold = !last && must_hold();
    held_ = hold;
  }
  strand_.post([self = shared_from_this(), event = std::move(event), last]() mutable {
    if (self->deliver_) self->deliver_(std::move(event));
    std::shared_ptr<engine::TextEngine> engine;
    RequestId request;
    {
      std::lock_guard lock(self->mutex_);
      --self->num_undelivered_;
      request = self->request_;
      if (last) {
        engine = std::exchange(self->engine_, nullptr);
      } else if (self->held_ && !self->must_hold()) {
        self->held_ = false;
        engine = self->engine_;
      }
    }
    if (engine && !last) engine->resume_output(request);
  });
  return !hold;
}

void EngineTap::set_request(RequestId request) {
  std::lock_guard lock(mutex_);
  request_ = request;
  has_request_ = true;
}

void EngineTap::update(bool EngineTap::*reason, bool value) {
  std::shared_ptr<engine::TextEngine> engine;
  RequestId request;
  {
    std::lock_guard lock(mutex_);
    this->*reason = value;
    if (!held_ || must_hold()) return;
    held_ = false;
    engine = engine_;
    request = request_;
  }
  // A command for the engine's thread: it cannot overtake the sink's return there.
  if (engine) engine->resume_output(request);
}

void EngineTap::set_reader_full(bool full) { update(&EngineTap::reader_full_, full); }
void EngineTap::set_link_full(bool full) { update(&EngineTap::link_full_, full); }

void EngineTap::cancel() {
  std::shared_ptr<engine::TextEngine> engine;
  RequestId request;
  {
    std::lock_guard lock(mutex_);
    if (!has_request_) return;
    engine = engine_;
    request = request_;
  }
  if (engine) engine->cancel(request);
}

void EngineTap::detach() { deliver_ = nullptr; }

}  // namespace flotilla::provider
