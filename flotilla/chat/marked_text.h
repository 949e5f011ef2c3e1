// Immutable text whose characters know whether they are trusted. Cheap to slice and to append to:
// several texts share one buffer, and the text that reaches the end of its buffer grows it in
// place, so building by appending is linear. Used by one thread; frozen texts (literals of a
// compiled template) may be shared between threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/text_span.h"

namespace flotilla::chat {

class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, bool trusted);

  // Text that is never grown in place, so that threads may share it.
  static MarkedText frozen(std::string bytes);

  // Valid until some text of the same buffer is appended to.
  std::string_view view() const;
  std::size_t size() const { return length_; }
  bool empty() const { return length_ == 0; }

  MarkedText substr(std::size_t offset, std::size_t length) const;
  MarkedText operator+(const MarkedText& other) const;

  // True when every character is trusted (also for the empty text).
  bool all_trusted() const;

  // Calls f(std::string_view, bool trusted) for each run of equal trust, in order.
  template <class F>
  void for_each_run(F&& f) const {
    if (length_ == 0) return;
    std::size_t at = offset_;
    const std::size_t end = offset_ + length_;
    for (std::size_t i = run_at(at); at < end; ++i) {
      const std::size_t stop = buffer_->runs[i].end < end ? buffer_->runs[i].end : end;
      f(std::string_view(buffer_->bytes).substr(at, stop - at), buffer_->runs[i].trusted);
      at = stop;
    }
  }

 private:
  friend class TextBuilder;
  struct Run {
    std::size_t end;  // byte offset in the buffer
    bool trusted;
  };
  struct Buffer {
    std::string bytes;
    std::vector<Run> runs;  // cover `bytes`; neighbours differ in trust
    bool is_frozen = false;
    void append(std::string_view text, bool trusted);
    void append(const MarkedText& text);
  };
  std::size_t run_at(std::size_t position) const;

  std::shared_ptr<Buffer> buffer_;
  std::size_t offset_ = 0;
  std::size_t length_ = 0;
};

// Collects text piece by piece.
class TextBuilder {
 public:
  TextBuilder();
  void append(std::string_view text, bool trusted);
  void append(const MarkedText& text);
  std::size_t size() const;
  MarkedText take();  // leaves the builder empty
  SpanText take_spans();

 private:
  std::shared_ptr<MarkedText::Buffer> buffer_;
};

}  // namespace flotilla::chat
