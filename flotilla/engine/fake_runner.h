// A model for tests of scheduler and engine. It really keeps its state in the pages: every token is
// written there, and the logits of a row are a hash of what the pages then hold. So an output is
// right only if every position was computed once, in order, and no page was mixed up, dropped too
// early or left dirty.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/engine/engine_core.h"
#include "flotilla/state/layer_state.h"

namespace flotilla::engine {

inline constexpr std::size_t kFakeVocab = 61;
inline constexpr int kFakeWindow = 20;
inline constexpr tensor::KvGeometry kFakeGeometry{.num_kv_heads = 1, .head_dim = 1};

// A full and a window layer; a page of either is 256 bytes.
inline state::StateLayout fake_layout() {
  return {.layers = {state::PagedKv{kFakeGeometry}, state::WindowKv{kFakeGeometry, kFakeWindow},
                     state::NoState{}}};
}
// Full attention alone; a hybrid with a recurrent state; everything at once.
inline state::StateLayout fake_full_layout() {
  return {.layers = {state::PagedKv{kFakeGeometry}, state::PagedKv{kFakeGeometry}}};
}
inline state::StateLayout fake_hybrid_layout() {
  return {.layers = {state::FixedState{2}, state::PagedKv{kFakeGeometry}, state::FixedState{1}}};
}
inline state::StateLayout fake_mixed_layout() {
  return {.layers = {state::PagedKv{kFakeGeometry}, state::WindowKv{kFakeGeometry, kFakeWindow},
                     state::FixedState{1}, state::WindowKv{kFakeGeometry, 70}}};
}
// Bytes of a pool in which a sequence of `blocks` blocks of 32 tokens has its full layer and
// window.
inline std::size_t fake_bytes(std::size_t pages) {
  return pages * tensor::kv_page_bytes(kFakeGeometry);
}

class FakeRunner final : public StepRunner {
 public:
  explicit FakeRunner(state::StateLayout layout = fake_layout()) : layout_(std::move(layout)) {}

  // Called before each step; may throw.
  std::function<void(std::span<const ScheduledRow>)> before_step;
  // A row for which this is true gets a NaN.
  std::function<bool(const Sequence&)> poison;
  // Called with each row of logits.
  std::function<void(const Sequence&, std::span<const float>)> on_logits;
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;

  std::span<const float> run(std::span<const ScheduledRow> rows) override {
    ++steps;
    if (before_step) before_step(rows);
    logits_.clear();
    for (const ScheduledRow& row : rows) {
      tokens += static_cast<std::uint64_t>(row.count);
      const Sequence& sequence = *row.sequence;
      if (row.begin != sequence.state.num_positions())
        throw std::logic_error("a gap in a sequence");
      for (std::int64_t p = row.begin; p < row.begin + row.count; ++p) compute(sequence, p);
      if (row.wants_logits) append_logits(sequence, row.begin + row.count);
    }
    return logits_;
  }

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }

 private:
  static float* slot(const Sequence& sequence, std::size_t layer, std::int64_t p) {
    const tensor::KvView view = sequence.state.views()[layer];
    const std::int64_t block = p / tensor::kKvBlock - view.first_block;
    if (block < 0 || block >= view.num_blocks) throw std::logic_error("no page for a position");
    return view.pages[block] + p % tensor::kKvBlock;
  }
  // A fixed state takes in each token, once and in order; 24 bits, so that a float holds it.
  void compute(const Sequence& sequence, std::int64_t p) {
    const TokenId id = sequence.tokens[static_cast<std::size_t>(p)];
    for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
      if (std::holds_alternative<state::NoState>(layout_.layers[layer])) continue;
      if (std::holds_alternative<state::FixedState>(layout_.layers[layer])) {
        float& value = sequence.state.views()[layer].pages[0][0];
        const auto before = static_cast<std::uint64_t>(value);
        value = static_cast<float>(mix(before * 64 + static_cast<std::uint64_t>(id) + 1) >> 40);
      } else {
        *slot(sequence, layer, p) = static_cast<float>(id + 1);
      }
    }
  }
  void append_logits(const Sequence& sequence, std::int64_t end) {
    std::uint64_t hash = 1;
    for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
      const state::LayerState& kind = layout_.layers[layer];
      if (std::holds_alternative<state::NoState>(kind)) continue;
      if (std::holds_alternative<state::FixedState>(kind)) {
        hash = mix(hash + static_cast<std::uint64_t>(sequence.state.views()[layer].pages[0][0]));
        continue;
      }
      std::int64_t first = 0;
      if (const auto* window = std::get_if<state::WindowKv>(&kind)) {
        first = std::max<std::int64_t>(0, end - window->window);
      }
      for (std::int64_t p = first; p < end; ++p) {
        hash = mix(hash + std::bit_cast<std::uint32_t>(*slot(sequence, layer, p)));
      }
    }
    const std::size_t begin = logits_.size();
    for (std::size_t i = 0; i < kFakeVocab; ++i) {
      logits_.push_back(static_cast<float>(mix(hash + i) % 4096) / 512.0f);
    }
    if (poison && poison(sequence)) {
      logits_.back() = std::numeric_limits<float>::quiet_NaN();
    }
    if (on_logits) on_logits(sequence, std::span<const float>(logits_).subspan(begin));
  }

  const state::StateLayout layout_;
  std::vector<float> logits_;
};

// The same with logits that stay where they are computed, as on a card.
class KeepingRunner final : public StepRunner {
 public:
  explicit KeepingRunner(state::StateLayout layout = fake_layout()) : inner_(std::move(layout)) {}

  FakeRunner& inner() { return inner_; }
  std::function<void()> before_shortlist;  // may throw
  std::uint64_t num_shortlists = 0, num_read = 0, num_chosen = 0;

  bool can_choose() const override { return true; }
  std::span<const TokenId> chosen() const override { return chosen_; }
  std::span<const float> run(std::span<const ScheduledRow> rows) override {
    const std::span<const float> all = inner_.run(rows);
    given_.clear(), kept_.clear(), chosen_.clear();
    std::size_t next = 0;
    for (const ScheduledRow& row : rows) {
      if (!row.wants_logits) continue;
      const auto logits = all.subspan(kFakeVocab * next++, kFakeVocab);
      if (row.chooses) {
        const backend::Shortlist list = backend::define_shortlist(logits, {});
        chosen_.push_back(list.is_finite ? list.first[0].id : -1);
        ++num_chosen;
        continue;
      }
      auto& to = row.stays ? kept_ : given_;
      to.insert(to.end(), logits.begin(), logits.end());
    }
    return given_;
  }
  std::vector<backend::Shortlist> shortlist(std::span<const backend::ShortlistRow> rows) override {
    if (before_shortlist) before_shortlist();
    std::vector<backend::Shortlist> out;
    for (const backend::ShortlistRow& row : rows) {
      out.push_back(backend::define_shortlist(kept(row.row), row));
      ++num_shortlists;
    }
    return out;
  }
  std::span<const float> read_logits(std::span<const std::int32_t> places) override {
    read_.clear();
    for (const std::int32_t place : places) {
      const auto logits = kept(place);
      read_.insert(read_.end(), logits.begin(), logits.end());
      ++num_read;
    }
    return read_;
  }

 private:
  std::span<const float> kept(std::int32_t place) const {
    return std::span(kept_).subspan(static_cast<std::size_t>(place) * kFakeVocab, kFakeVocab);
  }
  FakeRunner inner_;
  std::vector<float> given_, kept_, read_;
  std::vector<TokenId> chosen_;
};

// The text of token n is "n ".
class FakeOutputs final : public OutputFactory {
 public:
  std::unique_ptr<OutputPipeline> make_output(const PreparedJob& job) const override {
    class Decoder final : public TokenDecoder {
      TokenText push(TokenId id) override {
        return {.text = std::to_string(id) + " ", .special = {}};
      }
      std::string finish() override { return {}; }
    };
    return std::make_unique<OutputPipeline>(
        job.job, static_cast<std::int64_t>(job.prompt_ids.size()),
        chat::make_output_parser(chat::OutputSyntax::kPlain, ""), std::make_unique<Decoder>());
  }
  std::string token_bytes(TokenId id) const override { return std::to_string(id) + " "; }
};

inline EngineOptions fake_options() {
  EngineOptions options;
  options.kv_bytes = fake_bytes(4096);
  options.context_length = 2000;
  options.vocab_size = kFakeVocab;
  options.eos_ids = {0};
  options.model = "fake";
  return options;
}

inline std::shared_ptr<PreparedJob> fake_job(std::uint64_t prompt_seed, std::size_t prompt_tokens,
                                             std::int64_t max_tokens) {
  auto job = std::make_shared<PreparedJob>();
  for (std::size_t i = 0; i < prompt_tokens; ++i) {
    job->prompt_ids.push_back(
        static_cast<TokenId>(FakeRunner::mix(prompt_seed * 1000 + i) % kFakeVocab));
  }
  job->job.max_tokens = max_tokens;
  job->job.ignore_eos = true;
  job->job.sampling.temperature = 0;
  return job;
}

}  // namespace flotilla::engine
