#include "bench/fleet/response_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace flotilla::bench {
namespace {

constexpr std::size_t kMaxLine = 64u << 10;
constexpr std::string_view kDone = "data: [DONE]";
constexpr std::string_view kError = "data: {\"error\"";

std::string_view field(std::string_view head, std::string_view name) {
  std::size_t at = 0;
  while ((at = head.find("\r\n", at)) != std::string_view::npos) {
    at += 2;
    const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(b)) == a;
    });
    if (!same) continue;
    std::string_view value = line.substr(name.size() + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    return value;
  }
  return {};
}

template <class Int>
bool parse(std::string_view text, Int& out, int base) {
  return std::from_chars(text.data(), text.data() + text.size(), out, base).ec == std::errc();
}

}  // namespace

void ResponseReader::reset() { *this = ResponseReader(); }

void ResponseReader::feed(std::string_view data) {
  while (!data.empty()) {
    switch (step_) {
      case Step::kHead:
      case Step::kChunkSize:
      case Step::kTrailer: {
        const std::string_view mark = step_ == Step::kHead ? "\r\n\r\n" : "\r\n";
        const std::size_t before = line_.size();
        line_ += data;
        const std::size_t from = before > mark.size() ? before - mark.size() : 0;
        const std::size_t at = line_.find(mark, from);
        if (at == std::string::npos) {
          if (line_.size() > kMaxLine) step_ = Step::kBroken;
          return;
        }
        data.remove_prefix(at + mark.size() - before);
        line_.resize(at + 2);
        if (step_ == Step::kHead) {
          on_head();
        } else if (step_ == Step::kTrailer) {
          step_ = at == 0 ? Step::kDone : Step::kTrailer;
        } else if (!parse(line_, left_, 16)) {
          step_ = Step::kBroken;
        } else {
          step_ = left_ == 0 ? Step::kTrailer : Step::kChunk;
        }
        line_.clear();
        break;
      }
      case Step::kLength:
      case Step::kChunk: {
        const std::string_view piece = data.substr(0, left_);
        on_body(piece);
        data.remove_prefix(piece.size());
        left_ -= piece.size();
        if (left_ > 0) return;
        left_ = 2;
        step_ = step_ == Step::kLength ? Step::kDone : Step::kChunkEnd;
        break;
      }
      case Step::kChunkEnd: {
        const std::size_t n = std::min<std::size_t>(left_, data.size());
        data.remove_prefix(n);
        left_ -= n;
        if (left_ == 0) step_ = Step::kChunkSize;
        break;
      }
      case Step::kDone:
      case Step::kBroken:
        step_ = Step::kBroken;
        return;
    }
  }
}

void ResponseReader::on_head() {
  if (!line_.starts_with("HTTP/1.1 ") ||
      !parse(std::string_view(line_).substr(9, 3), status_, 10)) {
    step_ = Step::kBroken;
    return;
  }
  closes_ = field(line_, "connection").starts_with("close");
  is_events_ = field(line_, "content-type").starts_with("text/event-stream");
  if (field(line_, "transfer-encoding").starts_with("chunked")) {
    step_ = Step::kChunkSize;
  } else if (parse(field(line_, "content-length"), left_, 10)) {
    step_ = left_ == 0 ? Step::kDone : Step::kLength;
  } else {
    step_ = Step::kBroken;
  }
}

void ResponseReader::on_body(std::string_view piece) {
  body_bytes_ += piece.size();
  if (!is_events_) return;
  while (!piece.empty()) {
    const std::size_t at = piece.find('\n');
    const std::string_view line = piece.substr(0, at);
    if (at_start_ && start_.size() < kError.size())
      start_ += line.substr(0, kError.size() - start_.size());
    if (at == std::string_view::npos) {
      last_was_break_ = false;
      return;
    }
    if (line.empty() && last_was_break_) {  // a blank line: the event is whole
      if (start_.starts_with("data:")) ++events_;
      if (start_ == kDone) saw_done_ = true;
      if (start_ == kError) saw_error_ = true;
      start_.clear();
      at_start_ = true;
    } else {
      at_start_ = false;
    }
    last_was_break_ = true;
    piece.remove_prefix(at + 1);
  }
}

}  // namespace flotilla::bench
