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
constexpr std::size_t kMostEdits = 1 << 14;  // of a row; more are not worth the way to a device

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

Error no_token_left(bool constrained) {
  return constrained ? Error{ErrorCode::kInternal,
                             "no token of the vocabulary continues the constrained output"}
                     : Error{ErrorCode::kInvalidArgument, "every token is banned"};
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
  std::unordered_set<TokenId> biased;
  for (const auto& [id, bias] : params_.logit_bias) {
    repeats_bias_ = repeats_bias_ || !biased.insert(id).second;
  }
}

void Sampler::accept(TokenId id) {
  ++index_;
  if (params_.repetition_penalty != 1.0) seen_.insert(id);
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) ++counts_[id];
}

bool Sampler::takes_largest() const { return is_greedy() && !adjusts(); }

bool Sampler::is_greedy() const {
  return params_.temperature < kGreedyTemperature || params_.top_k == 1;
}

int Sampler::num_deciding() const {
  const std::size_t changed = params_.logit_bias.size() + std::max(seen_.size(), counts_.size());
  if (repeats_bias_ || changed > kMostEdits) return 0;
  if (is_greedy()) return 1;
  return params_.top_k <= backend::kMostShortlisted ? params_.top_k : 0;
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
  if (values[best] == kBanned) return no_token_left(!allowed.empty());
  if (is_greedy()) return static_cast<TokenId>(best);
  collect_candidates(values, values[best] - kLargestGap * params_.temperature, params_.top_k,
                     scratch);
  return pick(scratch);
}

std::vector<backend::LogitEdit> Sampler::edits(std::span<const TokenId> banned) const {
  std::unordered_map<TokenId, backend::LogitEdit> few;  // biased and banned ones
  for (const auto& [id, bias] : params_.logit_bias) few[id].bias = static_cast<float>(bias);
  for (const TokenId id : banned) few[id].taken_out = 1;
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  const auto frequency = static_cast<float>(params_.frequency_penalty);
  const auto presence = static_cast<float>(params_.presence_penalty);
  std::vector<backend::LogitEdit> out;
  const auto add = [&](TokenId id, bool seen, const std::int32_t* count) {
    backend::LogitEdit edit;
    if (!few.empty()) {
      if (const auto it = few.find(id); it != few.end()) {
        edit = it->second;
        few.erase(it);
      }
    }
    edit.id = id;
    if (seen) edit.repetition = repetition;
    if (count != nullptr) edit.penalty = frequency * static_cast<float>(*count) + presence;
    out.push_back(edit);
  };
  for (const TokenId id : seen_) {
    const auto count = counts_.find(id);
    add(id, true, count == counts_.end() ? nullptr : &count->second);
  }
  for (const auto& [id, count] : counts_) {
    if (!seen_.contains(id)) add(id, false, &count);
  }
  for (auto& [id, edit] : few) {
    edit.id = id;
    out.push_back(edit);
  }
  return out;
}

Result<TokenId> Sampler::sample_first(const backend::Shortlist& shortlist, bool constrained,
                                      SamplerScratch& scratch) const {
  if (!shortlist.is_finite) {
    return Error{ErrorCode::kModelFault, "NaN or an infinite value in the logits"};
  }
  if (shortlist.first.empty()) return no_token_left(constrained);
  if (is_greedy()) return shortlist.first.front().id;
  const double threshold = shortlist.first.front().value - kLargestGap * params_.temperature;
  scratch.candidates.clear();
  for (const backend::Candidate& candidate : shortlist.first) {
    if (candidate.value < threshold) break;
    scratch.candidates.push_back(candidate);
  }
  return pick(scratch);
}

TokenId Sampler::pick(SamplerScratch& scratch) const {
  const auto& candidates = scratch.candidates;
  const double largest = candidates.front().value;
  const double temperature = params_.temperature;
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
