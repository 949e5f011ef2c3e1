// Reads HTTP/1.1 answers as they come: enough to know that one is whole, and what it held.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flotilla::bench {

// One answer at a time; one thread.
class ResponseReader {
 public:
  void reset();
  // Takes all of `data`; one answer must not be followed by a byte of another.
  void feed(std::string_view data);

  bool done() const { return step_ == Step::kDone; }
  bool broken() const { return step_ == Step::kBroken; }  // not HTTP, or bytes after the end
  bool closes() const { return closes_; }                 // "Connection: close"
  int status() const { return status_; }
  bool streamed() const { return is_events_; }
  bool has_body() const { return body_bytes_ > 0; }
  std::uint64_t body_bytes() const { return body_bytes_; }
  // Server-sent events with data, "[DONE]" not among them.
  std::uint64_t events() const { return events_ - (saw_done_ ? 1 : 0); }
  bool saw_done() const { return saw_done_; }    // the stream said [DONE]
  bool saw_error() const { return saw_error_; }  // an error event

 private:
  enum class Step { kHead, kLength, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone, kBroken };
  void on_head();
  void on_body(std::string_view piece);

  Step step_ = Step::kHead;
  std::string line_;  // the head, or the line of a chunk's size
  std::uint64_t left_ = 0;
  std::uint64_t body_bytes_ = 0;
  std::uint64_t events_ = 0;
  int status_ = 0;
  bool is_events_ = false;
  bool closes_ = false;
  bool saw_done_ = false;
  bool saw_error_ = false;
  bool last_was_break_ = true;  // an event begins after a blank line
  bool at_start_ = true;        // of an event
  std::string start_;           // its first bytes
};

}  // namespace flotilla::bench
