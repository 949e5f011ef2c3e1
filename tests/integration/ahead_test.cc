// Steps that begin before they are asked for: the bundled model on a backend that chooses tokens as
// a device does, against the plain engine. Joins, ends, cancellations, preemptions and samplers in
// between must not change a token.
#include <gtest/gtest.h>

#include <random>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/engine_test_util.h"
#include "flotilla/engine/model_runner.h"
#include "flotilla/engine/text_assets.h"

namespace flotilla::engine {
namespace {

using namespace flotilla::backend;  // NOLINT: a backend in the middle

const std::string kModel = FLOTILLA_SOURCE_DIR "/models/flotilla-tiny";

class ChoosingBackend final : public Backend {
 public:
  explicit ChoosingBackend(Backend& inner) : inner_(inner) {}
  Capabilities capabilities() const override {
    Capabilities out = inner_.capabilities();
    out.chooses_tokens = true;
    return out;
  }
  Tensor allocate(const Shape& shape, tensor::DType dtype) override {
    return inner_.allocate(shape, dtype);
  }
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override {
    return inner_.prepare(stored);
  }
  void embedding(const EmbeddingArgs& args) override {
    EmbeddingArgs known = args;
    std::vector<TokenId> ids(args.ids.begin(), args.ids.end());
    for (std::size_t i = 0; i < args.chosen.size(); ++i) {
      ids[i] = std::max(0, choices_[static_cast<std::size_t>(args.chosen[i])]);
    }
    known.ids = ids;
    known.chosen = {};
    inner_.embedding(known);
  }
  std::vector<Shortlist> shortlist(const ShortlistArgs& args) override {
    num_shortlists += args.rows.size();
    return inner_.shortlist(args);
  }
  std::size_t num_shortlists = 0;
  void argmax(const ArgmaxArgs& args) override {
    inner_.argmax(args);
    choices_.assign(args.out.data<std::int32_t>(), args.out.data<std::int32_t>() + args.out.dim(0));
  }
  void linear(const LinearArgs& args) override { inner_.linear(args); }
  void linear_group(const LinearGroupArgs& args) override { inner_.linear_group(args); }
  void rms_norm(const RmsNormArgs& args) override { inner_.rms_norm(args); }
  void norm_add(const NormAddArgs& args) override { inner_.norm_add(args); }
  void rope(const RopeArgs& args) override { inner_.rope(args); }
  void gelu_mul(const GeluMulArgs& args) override { inner_.gelu_mul(args); }
  void softcap(const SoftcapArgs& args) override { inner_.softcap(args); }
  void kv_append(const KvAppendArgs& args) override { inner_.kv_append(args); }
  void attention(const AttentionArgs& args) override { inner_.attention(args); }

 private:
  Backend& inner_;
  std::vector<std::int32_t> choices_;
};

struct Ended {
  std::vector<TokenId> ids;
  std::optional<Finish> finish;
};

class Ahead : public testing::Test {
 protected:
  void SetUp() override {
    const auto checkpoint = checkpoint::Checkpoint::open(kModel);
    ASSERT_TRUE(checkpoint.ok());
    assets_ = TextAssets::load(kModel, checkpoint->config()).value();
    backend_ = make_cpu_backend({.num_threads = 1}).value();
    model_ = models::load_model(*checkpoint, *backend_).value();
  }
  EngineOptions options(std::size_t kv_bytes) const {
    EngineOptions options;
    options.scheduler = {.max_batch_tokens = 48, .prefill_chunk = 24, .max_sequences = 6};
    options.kv_bytes = kv_bytes;
    options.context_length = model_->info().context_length;
    options.vocab_size = static_cast<std::size_t>(model_->info().vocab_size);
    options.eos_ids = model_->info().eos_ids;
    options.model = "tiny";
    return options;
  }
  // Most take the largest logit; every fifth has a temperature (some with a few candidates, which
  // are found where the logits are, and penalties), every seventh wants logprobs.
  std::shared_ptr<const PreparedJob> job(int number) const {
    ChatJob job = chat_job("Tell me about number " + std::to_string(number % 9) + ".");
    job.max_tokens = 1 + number * 7 % 60;
    job.ignore_eos = number % 3 != 0;
    job.min_tokens = number % 4 == 0 ? 3 : 0;
    job.sampling.temperature = number % 5 == 4 ? 0.9 : 0.0;
    if (number % 10 == 4) job.sampling.top_k = 20;
    if (number % 20 == 4) job.sampling.frequency_penalty = 0.3;
    if (number % 20 == 14) job.sampling.repetition_penalty = 1.2;
    job.sampling.seed = static_cast<std::uint64_t>(number);
    if (number % 7 == 6) job.top_logprobs = 0;
    return assets_->prepare(std::move(job), model_->info().context_length).value();
  }
  // Requests arrive at random steps; some are cancelled.
  std::map<int, Ended> play(Backend& backend, std::size_t kv_bytes, int count, bool crowd,
                            std::uint64_t* ahead, std::uint64_t* preemptions) {
    auto owned = std::make_unique<ModelRunner>(*model_, backend);
    ModelRunner& runner = *owned;
    EngineCore core(options(kv_bytes), model_->state_layout(), std::move(owned), assets_);
    std::map<int, Ended> ended;
    std::mt19937 random(11);
    int next = 0;
    while (next < count || core.has_work()) {
      const bool arrives = crowd ? random() % 3 == 0 : !core.has_work();
      if (next < count && arrives) {
        const int number = next++;
        core.accept(RequestId{static_cast<std::uint64_t>(number) + 1}, job(number),
                    [&ended, number](TokenEvent event) {
                      Ended& to = ended[number];
                      to.ids.insert(to.ids.end(), event.ids.begin(), event.ids.end());
                      if (event.finish) to.finish = event.finish;
                      return true;
                    });
        if (crowd && number % 6 == 5) core.cancel(RequestId{static_cast<std::uint64_t>(number)});
      }
      core.step();
      core.take_finished();
      core.check_integrity();
    }
    *ahead = runner.num_rows_ahead();
    *preemptions = core.num_preemptions();
    return ended;
  }
  void expect_equal(std::size_t kv_bytes, bool wants_preemptions) {
    const int count = kSanitized ? 20 : 60;
    std::uint64_t none = 0, ahead = 0, preemptions = 0;
    const auto solo = play(*backend_, 64 << 20, count, false, &none, &preemptions);
    EXPECT_EQ(none, 0u);
    ChoosingBackend choosing(*backend_);
    const auto mixed = play(choosing, kv_bytes, count, true, &ahead, &preemptions);
    EXPECT_GT(ahead, static_cast<std::uint64_t>(count / 2)) << "nothing began early";
    EXPECT_GT(choosing.num_shortlists, static_cast<std::size_t>(count / 2));
    if (wants_preemptions) {
      EXPECT_GT(preemptions, 0u);
    }
    int finished = 0;
    for (const auto& [number, expected] : solo) {
      const Ended& got = mixed.at(number);
      ASSERT_TRUE(got.finish.has_value());
      if (got.finish->reason == FinishReason::kCancelled) continue;
      ++finished;
      EXPECT_EQ(got.ids, expected.ids) << "request " << number;
      EXPECT_EQ(got.finish->reason, expected.finish->reason);
    }
    EXPECT_GT(finished, count / 2);
  }

  std::shared_ptr<const TextAssets> assets_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::CausalLM> model_;
};

TEST_F(Ahead, TokensAreThoseOfThePlainEngine) { expect_equal(64 << 20, false); }

TEST_F(Ahead, AlsoWhenSequencesLoseTheirPages) {
  const std::size_t two = model_->state_layout().peak_bytes(160, 24) * 5 / 2;
  expect_equal(two, true);
}

}  // namespace
}  // namespace flotilla::engine
