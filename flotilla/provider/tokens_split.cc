#include "flotilla/provider/tokens_split.h"

#include <algorithm>
#include <utility>

#include "flotilla/base/text.h"

namespace flotilla::provider {

namespace {
// Well below the limits of a frame: 21 logprobs of an id take about half a kilobyte, at worst 30.
constexpr std::size_t kIdsPerFrame = 16'384;
constexpr std::size_t kIdsWithLogprobs = 64;
constexpr std::size_t kTextPerFrame = 512u << 10;
constexpr std::size_t kDeltasPerFrame = 1'024;

std::string cut(const std::string& text, std::size_t max) {
  if (text.size() <= max) return text;
  std::string head = text.substr(0, max);
  head.resize(head.size() - incomplete_utf8_suffix(head));
  return head;
}
}  // namespace

std::vector<protocol::Tokens> split_to_limits(protocol::Tokens tokens) {
  std::vector<protocol::Tokens> frames;
  const std::size_t per_frame = tokens.logprobs.empty() ? kIdsPerFrame : kIdsWithLogprobs;
  for (std::size_t at = 0; at < tokens.ids.size(); at += per_frame) {
    const std::size_t end = std::min(tokens.ids.size(), at + per_frame);
    protocol::Tokens& frame = frames.emplace_back();
    frame.first_index = tokens.first_index + at;
    frame.ids.assign(tokens.ids.begin() + static_cast<std::ptrdiff_t>(at),
                     tokens.ids.begin() + static_cast<std::ptrdiff_t>(end));
    for (std::size_t i = at; i < std::min(end, tokens.logprobs.size()); ++i) {
      frame.logprobs.push_back(std::move(tokens.logprobs[i]));
    }
  }
  // Text rides on the last frame of ids, then on frames of its own.
  const std::uint64_t after_ids = tokens.first_index + tokens.ids.size();
  std::size_t text_bytes = 0;
  for (protocol::TextDelta& delta : tokens.deltas) {
    if (delta.call_name.size() > protocol::Tokens::kMaxCallName) {
      delta.call_name = cut(delta.call_name, protocol::Tokens::kMaxCallName);
    }
    bool first = true;
    while (first || !delta.text.empty()) {
      protocol::TextDelta piece = delta;
      piece.text = cut(delta.text, kTextPerFrame);
      if (!first) piece.call_id.clear(), piece.call_name.clear();
      delta.text.erase(0, piece.text.size());
      if (frames.empty() || frames.back().deltas.size() >= kDeltasPerFrame ||
          (text_bytes > 0 && text_bytes + piece.text.size() > kTextPerFrame)) {
        frames.emplace_back().first_index = after_ids;
        text_bytes = 0;
      }
      text_bytes += piece.text.size();
      frames.back().deltas.push_back(std::move(piece));
      first = false;
    }
  }
  return frames;
}

}  // namespace flotilla::provider
