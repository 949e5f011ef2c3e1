// Frames over a local stream socket.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "flotilla/worker/messages.h"

namespace flotilla::worker {

struct Frame {
  Kind kind = Kind::kStats;
  std::uint64_t tag = 0;
  std::string body;
};

// send() from any thread, receive() from one. Owns the socket.
class Channel {
 public:
  explicit Channel(int fd);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Never waits for the other side; nothing happens any more once that is gone.
  void send(Kind kind, std::uint64_t tag, std::string_view body = {});
  // Waits. Nothing: the other side has closed, or sent what is no frame.
  std::optional<Frame> receive();
  // Returns when all that was sent is in the socket, or does not get there within seconds.
  void flush();
  // The other side reads an end; what it sends still arrives.
  void finish_sending();

 private:
  void write_loop();

  const int fd_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::string outgoing_;   // guarded by mutex_
  bool writing_ = false;   // guarded by mutex_
  bool broken_ = false;    // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread writer_;
};

}  // namespace flotilla::worker
