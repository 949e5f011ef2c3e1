#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "expected.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "runner.h"

namespace flotilla::reference_check {
namespace {

constexpr float kMaxLogitDifference = 1e-3f;
constexpr float kTieMargin = 1e-3f;
constexpr std::size_t kChunks[] = {1, 7, 16};
constexpr std::size_t kBatch = 8;

// The largest absolute difference; infinite when sizes differ or anything is not a number.
float largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

bool equal_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Solo {
  std::vector<float> logits;
  Continuation continuation;
};

// The other devices and settings that must give the same bits.
struct Variant {
  std::string name;
  std::unique_ptr<Runner> runner;
};

class FolderCheck {
 public:
  explicit FolderCheck(std::string folder) : folder_(std::move(folder)) {}

  Outcome run() {
    auto checkpoint = checkpoint::Checkpoint::open(folder_);
    if (!checkpoint.ok()) return fail(checkpoint.error());
    auto runner = Runner::create(*checkpoint, {});
    if (!runner.ok()) return fail(runner.error());
    runner_ = std::move(*runner);
    auto expected = read_expected(folder_, runner_->model().info().vocab_size);
    if (!expected.ok()) return fail(expected.error());
    expected_ = std::move(*expected);
    if (const Status status = make_variants(*checkpoint); !status.ok()) return fail(status.error());

    const models::ModelInfo& info = runner_->model().info();
    std::printf("%s: %s, %lld layers, %lld parameters, %s\n", folder_.c_str(), info.family.c_str(),
                static_cast<long long>(info.num_layers),
                static_cast<long long>(info.num_parameters), runner_->device().c_str());
    for (std::size_t i = 0; i < expected_.prompts.size(); ++i) check_prompt(i);
    if (expected_.num_picture_cases > 0) {
      std::printf("  %d picture cases are not run: pictures are not supported yet\n",
                  expected_.num_picture_cases);
    }
    std::printf("%s: %s\n", folder_.c_str(), failed_ ? "FAILED" : "passed");
    return failed_ ? Outcome::kFailed : Outcome::kPassed;
  }

 private:
  Outcome fail(const Error& error) {
    const bool unsupported = error.code == ErrorCode::kUnsupported;
    std::printf("%s: %s: %s\n", folder_.c_str(), unsupported ? "UNSUPPORTED" : "FAILED",
                error.message.c_str());
    return unsupported ? Outcome::kUnsupported : Outcome::kFailed;
  }

  Status make_variants(const checkpoint::Checkpoint& checkpoint) {
    using backend::CpuTarget;
    const std::pair<const char*, backend::CpuOptions> wanted[] = {
        {"scalar", {.num_threads = 1, .target = CpuTarget::kScalar}},
        {"avx2", {.num_threads = 1, .target = CpuTarget::kAvx2}},
        {"avx512", {.num_threads = 1, .target = CpuTarget::kAvx512}},
        {"2 threads", {.num_threads = 2}},
        {"3 threads", {.num_threads = 3}},
        {"weights as stored", {.num_threads = 1, .pack_weights = false}}};
    for (const auto& [name, options] : wanted) {
      auto runner = Runner::create(checkpoint, options);
      if (!runner.ok() && runner.error().code == ErrorCode::kUnavailable) {
        std::printf("%s: %s is not available here\n", folder_.c_str(), name);
        continue;
      }
      if (!runner.ok()) return std::move(runner).error();
      variants_.push_back({name, std::move(*runner)});
    }
    return ok_status();
  }

  // Marks a failure; for use in print arguments.
  const char* judge(bool good, const char* yes, const char* no) {
    failed_ = failed_ || !good;
    return good ? yes : no;
  }

  void check_prompt(std::size_t index) {
    const Prompt& prompt = expected_.prompts[index];
    std::vector<float> hidden;
    Solo solo;
    solo.logits = runner_->prefill(prompt.ids, 0, prompt.hidden.empty() ? nullptr : &hidden);
    solo.continuation = runner_->generate(prompt.ids, prompt.greedy.size());

    const float difference = largest_difference(solo.logits, prompt.logits);
    std::printf("  %s, %zu tokens: largest logit difference %.2e%s", prompt.name.c_str(),
                prompt.ids.size(), static_cast<double>(difference),
                judge(difference <= kMaxLogitDifference, "", " EXCEEDS 1e-3"));
    if (!prompt.hidden.empty()) {
      std::printf(", hidden %.2e", static_cast<double>(largest_difference(hidden, prompt.hidden)));
    }
    report_greedy(prompt, solo.continuation);
    for (const std::size_t chunk : kChunks) {
      const bool equal = equal_bits(runner_->prefill(prompt.ids, chunk), solo.logits);
      std::printf(", chunks of %zu %s", chunk, judge(equal, "equal", "DIFFER"));
    }
    std::printf(", batch of %zu %s", kBatch, judge(batch_equals(index, solo), "equal", "DIFFERS"));
    for (const Variant& variant : variants_) {
      const bool equal =
          equal_bits(variant.runner->prefill(prompt.ids, 0), solo.logits) &&
          equal_bits(variant.runner->generate(prompt.ids, prompt.greedy.size()).logits,
                     solo.continuation.logits);
      std::printf(", %s %s", variant.name.c_str(), judge(equal, "equal", "DIFFERS"));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  void report_greedy(const Prompt& prompt, const Continuation& ours) {
    const auto [mine, theirs] =
        std::mismatch(ours.ids.begin(), ours.ids.end(), prompt.greedy.begin());
    if (mine == ours.ids.end()) {
      std::printf(", greedy %zu of %zu equal", ours.ids.size(), prompt.greedy.size());
      return;
    }
    // After a tie both continuations are right, and no longer comparable.
    const auto step = static_cast<std::size_t>(mine - ours.ids.begin());
    const bool tie = prompt.margins[step] < kTieMargin;
    std::printf(", greedy differs first at %zu of %zu (%d for %d, margin %.2e%s", step,
                prompt.greedy.size(), *mine, *theirs, static_cast<double>(prompt.margins[step]),
                judge(tie, ": a tie)", ") WRONG"));
  }

  // The prompt between others and copies of itself, everyone at another chunk size, decoding while
  // others prefill.
  bool batch_equals(std::size_t index, const Solo& solo) {
    std::vector<std::vector<TokenId>> prompts;
    std::vector<std::size_t> chunks;
    constexpr std::size_t kSizes[kBatch] = {0, 3, 16, 1, 7, 0, 33, 5};
    for (std::size_t i = 0; i < kBatch; ++i) {
      // Every other one is the prompt itself.
      const std::size_t which = i % 2 == 0 ? index : (index + 1 + i / 2) % expected_.prompts.size();
      prompts.push_back(expected_.prompts[which].ids);
      chunks.push_back(kSizes[i]);
    }
    const std::size_t num_tokens = expected_.prompts[index].greedy.size();
    const auto results = runner_->run_batch(prompts, chunks, num_tokens);
    for (std::size_t i = 0; i < kBatch; i += 2) {
      if (!equal_bits(results[i].logits, solo.logits) ||
          !equal_bits(results[i].continuation.logits, solo.continuation.logits)) {
        return false;
      }
    }
    return true;
  }

  const std::string folder_;
  std::unique_ptr<Runner> runner_;
  std::vector<Variant> variants_;
  Expected expected_;
  bool failed_ = false;
};

}  // namespace

Outcome check_folder(const std::string& folder) { return FolderCheck(folder).run(); }

}  // namespace flotilla::reference_check
