#include "flotilla/chat/marked_text.h"

#include <algorithm>
#include <utility>

namespace flotilla::chat {

void MarkedText::Buffer::append(std::string_view text, bool trusted) {
  if (text.empty()) return;
  bytes.append(text);
  if (!runs.empty() && runs.back().trusted == trusted) {
    runs.back().end = bytes.size();
  } else {
    runs.push_back({bytes.size(), trusted});
  }
}

void MarkedText::Buffer::append(const MarkedText& text) {
  if (text.buffer_.get() == this) {
    // The views below would move while the buffer grows.
    const MarkedText copy = [&] {
      MarkedText fresh;
      fresh.buffer_ = std::make_shared<Buffer>();
      fresh.buffer_->append(text);
      fresh.length_ = text.length_;
      return fresh;
    }();
    copy.for_each_run([this](std::string_view run, bool trusted) { append(run, trusted); });
    return;
  }
  text.for_each_run([this](std::string_view run, bool trusted) { append(run, trusted); });
}

MarkedText::MarkedText(std::string bytes, bool trusted) : length_(bytes.size()) {
  if (bytes.empty()) return;
  buffer_ = std::make_shared<Buffer>();
  buffer_->bytes = std::move(bytes);
  buffer_->runs.push_back({length_, trusted});
}

MarkedText MarkedText::frozen(std::string bytes) {
  MarkedText text(std::move(bytes), true);
  if (text.buffer_) text.buffer_->is_frozen = true;
  return text;
}

std::string_view MarkedText::view() const {
  return buffer_ ? std::string_view(buffer_->bytes).substr(offset_, length_) : std::string_view();
}

MarkedText MarkedText::substr(std::size_t offset, std::size_t length) const {
  MarkedText part;
  if (offset >= length_) return part;
  length = std::min(length, length_ - offset);
  if (length == 0) return part;
  part.buffer_ = buffer_;
  part.offset_ = offset_ + offset;
  part.length_ = length;
  return part;
}

MarkedText MarkedText::operator+(const MarkedText& other) const {
  if (other.empty()) return *this;
  if (empty()) return other;
  MarkedText sum;
  if (!buffer_->is_frozen && offset_ + length_ == buffer_->bytes.size()) {
    sum.buffer_ = buffer_;
    sum.offset_ = offset_;
  } else {
    sum.buffer_ = std::make_shared<Buffer>();
    sum.buffer_->bytes.reserve(length_ + other.length_);
    sum.buffer_->append(*this);
  }
  sum.buffer_->append(other);
  sum.length_ = length_ + other.length_;
  return sum;
}

bool MarkedText::all_trusted() const {
  bool all = true;
  for_each_run([&all](std::string_view, bool trusted) { all = all && trusted; });
  return all;
}

std::size_t MarkedText::run_at(std::size_t position) const {
  const auto& runs = buffer_->runs;
  const auto it = std::upper_bound(runs.begin(), runs.end(), position,
                                   [](std::size_t p, const Run& run) { return p < run.end; });
  return static_cast<std::size_t>(it - runs.begin());
}

TextBuilder::TextBuilder() : buffer_(std::make_shared<MarkedText::Buffer>()) {}
void TextBuilder::append(std::string_view text, bool trusted) { buffer_->append(text, trusted); }
void TextBuilder::append(const MarkedText& text) { buffer_->append(text); }
std::size_t TextBuilder::size() const { return buffer_->bytes.size(); }

MarkedText TextBuilder::take() {
  MarkedText text;
  text.length_ = buffer_->bytes.size();
  text.buffer_ = std::exchange(buffer_, std::make_shared<MarkedText::Buffer>());
  return text;
}

SpanText TextBuilder::take_spans() {
  SpanText spans;
  take().for_each_run([&spans](std::string_view run, bool trusted) {
    spans.push_back({std::string(run), trusted});
  });
  return spans;
}

}  // namespace flotilla::chat
