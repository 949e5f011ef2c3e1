#include "trace.h"

#include <algorithm>
#include <cstring>

namespace flotilla::schedules {
namespace {

std::string at(const char* what, std::int64_t index) {
  return std::string(what) + " differ at generation index " + std::to_string(index);
}

// The error that the arrival's own fault demands, where the fault is reached.
std::optional<ErrorCode> demanded_error(const Arrival& arrival, const Trace& solo) {
  const auto length = static_cast<std::int64_t>(solo.ids.size());
  if (arrival.fault_at >= length) return std::nullopt;
  // The token that ends an answer has no text: the decoder never sees it.
  const bool has_text =
      arrival.fault_at + 1 < length || solo.finish->reason != engine::FinishReason::kStop;
  if (arrival.fault == Fault::kOutputThrow && has_text) return ErrorCode::kInternal;
  if (arrival.fault == Fault::kNan && arrival.fault_at >= arrival.resume_at) {
    return ErrorCode::kModelFault;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t hash_bits(std::span<const float> values) {
  // Four independent chains: a row of logits should not cost more than its sampling.
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::size_t i = 0;
  const auto mix = [](std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
  };
  for (; i + 8 <= values.size(); i += 8) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &values[i + 2 * lane], 8);
      lanes[lane] = mix(lanes[lane], bits);
    }
  }
  for (; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    lanes[0] = mix(lanes[0], bits);
  }
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

std::string difference(const Arrival& arrival, const Trace& got, const Trace& solo) {
  const bool told = arrival.fault != Fault::kSinkThrow;
  if (told && got.num_finishes != 1) {
    return std::to_string(got.num_finishes) + " finish events instead of one";
  }
  if (got.num_finishes > 1) return "more than one finish event";
  if (got.index_gap) return "the indices of the events have a gap";

  const auto length = static_cast<std::int64_t>(solo.ids.size());
  const std::int64_t first = std::clamp<std::int64_t>(arrival.resume_at, 0, length);
  std::int64_t expected_index = first;
  for (const Trace::Position& position : got.logits) {
    if (position.index != expected_index) return at("computed positions", expected_index);
    const auto index = static_cast<std::size_t>(position.index);
    // Of the two, the logits come first: they were the same when the tokens before were.
    if (index >= solo.logits.size()) return at("numbers of tokens", position.index);
    if (position.hash != solo.logits[index].hash &&
        !(arrival.fault == Fault::kNan && arrival.fault_at == position.index)) {
      return at("logits", position.index);
    }
    ++expected_index;
  }
  const std::size_t common = std::min(got.ids.size(), solo.ids.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (got.ids[i] != solo.ids[i]) return at("tokens", static_cast<std::int64_t>(i));
  }
  if (got.ids.size() > solo.ids.size()) return at("numbers of tokens", static_cast<int>(common));
  const auto before = static_cast<std::size_t>(first);
  for (std::size_t i = 0; i < got.logprobs.size(); ++i) {
    if (before + i >= solo.logprobs.size() || got.logprobs[i] != solo.logprobs[before + i]) {
      return at("logprobs", static_cast<std::int64_t>(before + i));
    }
  }
  if (!got.finish.has_value()) return "";

  using engine::FinishReason;
  const FinishReason reason = got.finish->reason;
  if (reason == FinishReason::kCancelled) {
    return arrival.cancel_step >= 0 ? "" : "it was cancelled by nobody";
  }
  const auto demanded = demanded_error(arrival, solo);
  if (reason == FinishReason::kError) {
    if (got.in_failed_step) return "";
    const std::string message = got.finish->error ? got.finish->error->message : "no error";
    const bool own = demanded || arrival.fault == Fault::kOutputThrow;
    if (!own || !got.finish->error) return "it failed: " + message;
    if (got.finish->error->code != demanded.value_or(ErrorCode::kInternal))
      return "its fault gave another error: " + message;
    return "";
  }
  if (demanded) return "its fault did not end it";
  if (reason != solo.finish->reason) return "finish reasons differ";
  if (got.ids.size() != solo.ids.size()) return at("numbers of tokens", static_cast<int>(common));
  if (got.text != solo.text) return "texts differ";
  if (got.finish->matched_stop != solo.finish->matched_stop) return "matched stop strings differ";
  if (got.finish->usage.completion_tokens != solo.finish->usage.completion_tokens) {
    return "usages differ";
  }
  return "";
}

}  // namespace flotilla::schedules
