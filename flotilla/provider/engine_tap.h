// Between an engine's thread and a strand: hands events over, and holds the sequence while nobody
// takes them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "flotilla/engine/text_engine.h"
#include "flotilla/net/io_runtime.h"

namespace flotilla::provider {

// Thread-safe. The engine's sink keeps it alive.
class EngineTap : public std::enable_shared_from_this<EngineTap> {
 public:
  // `deliver` runs on `strand`, in order.
  EngineTap(const net::Strand& strand, std::shared_ptr<engine::TextEngine> engine,
            std::function<void(engine::TokenEvent)> deliver);

  engine::EventSink sink();
  void set_request(RequestId request);
  // Reasons to hold the sequence; it goes on when none is left.
  void set_reader_full(bool full);  // the client reads slowly
  void set_link_full(bool full);    // the connection takes no more
  void cancel();
  // No delivery after this returned, when called on the strand.
  void detach();

 private:
  bool on_event(engine::TokenEvent event);
  void update(bool EngineTap::*reason, bool value);
  bool must_hold() const {
    return reader_full_ || link_full_ || num_undelivered_ > kMaxUndelivered;
  }
  static constexpr std::size_t kMaxUndelivered = 256;

  const net::Strand strand_;
  std::mutex mutex_;
  std::shared_ptr<engine::TextEngine> engine_;  // guarded by mutex_; let go after the last event
  std::function<void(engine::TokenEvent)>
      deliver_;                      // strand only, but for detach() before the first event
  RequestId request_;                // guarded by mutex_
  bool has_request_ = false;         // guarded by mutex_
  bool reader_full_ = false;         // guarded by mutex_
  bool link_full_ = false;           // guarded by mutex_
  bool held_ = false;                // guarded by mutex_; the sink said false, nobody resumed since
  std::size_t num_undelivered_ = 0;  // guarded by mutex_
};

}  // namespace flotilla::provider
