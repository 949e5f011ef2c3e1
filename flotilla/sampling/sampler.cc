#include "flotilla/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/secure_zero.h"
#include "flotilla/sampling/candidates.h"
#include "flotilla/sampling/exact_math.h"
#include "flotilla/sampling/philox.h"

namespace flotilla::sampling {

namespace {
constexpr float kBanned = -std::numeric_limits<float>::infinity();

void take_out_disallowed(std::span<float> values, std::span<const std::uint32_t> allowed) {
  for (std::size_t word = 0; word * 32 < values.size(); ++word) {
    const std::uint32_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == 0xFFFFFFFF) continue;
    const std::size_t end = std::min(values.size(), word * 32 + 32);
    for (std::size_t i = word * 32; i < end; ++i) {
      values[i] = (bits >> (i % 32) & 1u) != 0 ? values[i] : kBanned;
    }
  }
}

}  // namespace

void SamplerScratch::wipe() {
  secure_clear(adjusted);
  secure_clear(candidates);
  secure_clear(sorting);
  secure_clear(weights);
}

Status check_finite(std::span<const float> logits) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t found = 0;  // no early exit: the loop vectorises
  for (const float v : logits) {
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(v) & kExponent) == kExponent);
  }
  if (found == 0) return ok_status();
  std::size_t at = 0;
  while ((std::bit_cast<std::uint32_t>(logits[at]) & kExponent) != kExponent) ++at;
  return Error{ErrorCode::kModelFault,
               std::string(logits[at] != logits[at] ? "NaN" : "an infinite value") +
                   " in the logits, at token " + std::to_string(at)};
}

Sampler::Sampler(SamplingParams params, std::span<const TokenId> prompt)
    : params_(std::move(params)) {
  if (params_.repetition_penalty != 1.0) seen_.insert(prompt.begin(), prompt.end());
}

void Sampler::accept(TokenId id) {
  ++index_;
  if (params_.repetition_penalty != 1.0) seen_.insert(id);
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) ++counts_[id];
}

bool Sampler::takes_largest() const {
  return (params_.temperature < kGreedyTemperature || params_.top_k == 1) && !adjusts();
}

bool Sampler::adjusts() const {
  return !params_.logit_bias.empty() || !seen_.empty() || !counts_.empty();
}

void Sampler::adjust(std::span<float> values) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    values[static_cast<std::size_t>(id)] += static_cast<float>(bias);
  }
  // Each token is changed by itself: the order of these loops does not matter.
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  for (const TokenId id : seen_) {
    float& value = values[static_cast<std::size_t>(id)];
    value = value > 0 ? value / repetition : value * repetition;
  }
  const auto frequency = static_cast<float>(params_.frequency_penalty);
  const auto presence = static_cast<float>(params_.presence_penalty);
  for (const auto& [id, count] : counts_) {
    values[static_cast<std::size_t>(id)] -= frequency * static_cast<float>(count) + presence;
  }
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> banned,
                                SamplerScratch& scratch,
                                std::span<const std::uint32_t> allowed) const {
  FLOTILLA_TRY_STATUS(check_finite(logits));
  std::span<const float> values = logits;
  if (adjusts() || !banned.empty() || !allowed.empty()) {
    scratch.adjusted.assign(logits.begin(), logits.end());
    adjust(scratch.adjusted);
    if (!allowed.empty()) take_out_disallowed(scratch.adjusted, allowed);
    for (const TokenId id : banned) scratch.adjusted[static_cast<std::size_t>(id)] = kBanned;
    values = scratch.adjusted;
  }
  const std::size_t best = index_of_largest(values);
  if (values[best] == kBanned) {
    return allowed.empty() ? Error{ErrorCode::kInvalidArgument, "every token is banned"}
                           : Error{ErrorCode::kInternal,
                                   "no token of the vocabulary continues the constrained output"};
  }
  if (params_.temperature < kGreedyTemperature || params_.top_k == 1) {
    return static_cast<TokenId>(best);
  }

  const double largest = values[best];
  const double temperature = params_.temperature;
  collect_candidates(values, largest - kLargestGap * temperature, params_.top_k, scratch);
  const auto& candidates = scratch.candidates;
  scratch.weights.clear();
  double total = 0;
  for (const auto& candidate : candidates) {
    const double gap = (candidate.value - largest) / temperature;
    if (gap < -kLargestGap) break;
    scratch.weights.push_back(exact_exp(gap));
    total += scratch.weights.back();
  }

  std::size_t kept = scratch.weights.size();
  if (params_.top_p < 1.0) {
    const double wanted = params_.top_p * total;
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += scratch.weights[i];
      if (sum >= wanted) kept = i + 1;
    }
  }
  while (kept > 1 && scratch.weights[kept - 1] < params_.min_p) --kept;

  total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += scratch.weights[i];
  const double point = uniform(params_.seed, params_.choice, index_) * total;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += scratch.weights[i];
    if (sum > point) return candidates[i].id;
  }
  return candidates[kept - 1].id;  // rounding only
}

}  // namespace flotilla::sampling
