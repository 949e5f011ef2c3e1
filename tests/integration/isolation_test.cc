// A NaN in one row, an exception in one request: the others' bits and speed. The bundled model on
// the engine's own thread.
#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <stdexcept>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/engine/engine.h"
#include "flotilla/engine/engine_test_util.h"
#include "flotilla/engine/model_runner.h"
#include "flotilla/engine/text_assets.h"

namespace flotilla::engine {
namespace {

const std::string kModel = FLOTILLA_SOURCE_DIR "/models/flotilla-tiny";

// Puts a NaN into the rows of one prompt from some length on, as a bad weight or a device might.
class PoisoningRunner final : public StepRunner {
 public:
  PoisoningRunner(const models::CausalLM& model, backend::Backend& backend)
      : inner_(model, backend) {}
  std::span<const float> run(std::span<const ScheduledRow> rows) override {
    const std::span<const float> logits = inner_.run(rows);
    const auto wanted = static_cast<std::size_t>(
        std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.wants_logits; }));
    if (wanted == 0) return logits;
    const std::size_t vocab = logits.size() / wanted;
    copy_.assign(logits.begin(), logits.end());
    std::size_t at = 0;
    for (const ScheduledRow& row : rows) {
      if (!row.wants_logits) continue;
      const Sequence& sequence = *row.sequence;
      if (sequence.tenant == "poisoned" && sequence.tokens.size() >= 30) {
        copy_[at * vocab + 77] = std::numeric_limits<float>::quiet_NaN();
      }
      ++at;
    }
    return copy_;
  }

 private:
  ModelRunner inner_;
  std::vector<float> copy_;
};

// Throws inside the pipeline of requests of the tenant "throwing".
class ThrowingOutputs final : public OutputFactory {
 public:
  explicit ThrowingOutputs(std::shared_ptr<const TextAssets> assets) : assets_(std::move(assets)) {}
  std::unique_ptr<OutputPipeline> make_output(const PreparedJob& job) const override {
    if (job.job.tenant != "throwing") return assets_->make_output(job);
    class Decoder final : public TokenDecoder {
      TokenText push(TokenId) override {
        if (++num_tokens_ > 3) throw std::runtime_error("a decoder that fails");
        return {.text = "x", .special = {}};
      }
      std::string finish() override { return {}; }
      int num_tokens_ = 0;
    };
    return std::make_unique<OutputPipeline>(
        job.job, static_cast<std::int64_t>(job.prompt_ids.size()),
        chat::make_output_parser(chat::OutputSyntax::kPlain, ""), std::make_unique<Decoder>());
  }
  std::string token_bytes(TokenId id) const override { return assets_->token_bytes(id); }

 private:
  std::shared_ptr<const TextAssets> assets_;
};

class Isolation : public testing::Test {
 protected:
  void SetUp() override {
    const auto checkpoint = checkpoint::Checkpoint::open(kModel);
    ASSERT_TRUE(checkpoint.ok());
    auto assets = TextAssets::load(kModel, checkpoint->config());
    ASSERT_TRUE(assets.ok());
    assets_ = *assets;
    backend_ = backend::make_cpu_backend({.num_threads = 1}).value();
    model_ = models::load_model(*checkpoint, *backend_).value();
    EngineOptions options;
    options.scheduler = {.max_batch_tokens = 64, .prefill_chunk = 32};
    options.kv_bytes = 64 << 20;
    options.context_length = model_->info().context_length;
    options.vocab_size = static_cast<std::size_t>(model_->info().vocab_size);
    options.eos_ids = model_->info().eos_ids;
    options.model = "tiny";
    engine_ = std::make_unique<Engine>(options, model_->state_layout(),
                                       std::make_unique<PoisoningRunner>(*model_, *backend_),
                                       std::make_shared<ThrowingOutputs>(assets_));
  }

  std::shared_ptr<const PreparedJob> job(int number, const std::string& tenant) {
    ChatJob job = chat_job("Tell me a story about number " + std::to_string(number) + ".");
    job.tenant = tenant;
    job.max_tokens = 32;
    job.ignore_eos = true;
    job.sampling.temperature = number % 2 == 0 ? 0.0 : 0.9;
    job.sampling.seed = static_cast<std::uint64_t>(number);
    return assets_->prepare(std::move(job), model_->info().context_length).value();
  }
  std::shared_ptr<EventLog> submit(const std::shared_ptr<const PreparedJob>& job) {
    auto log = EventLog::make();
    EXPECT_TRUE(engine_->submit(job, EventLog::sink(log)).ok());
    return log;
  }

  struct Crowd {
    std::vector<std::vector<TokenId>> ids;
    double seconds = 0;  // of processor time, which other programs do not change
  };
  // Eight good requests; before every second one, a bad one of `tenant` (empty: none).
  Crowd run_crowd(const std::string& tenant, std::vector<std::shared_ptr<EventLog>>* bad) {
    const std::clock_t begin = std::clock();
    std::vector<std::shared_ptr<EventLog>> logs;
    for (int i = 0; i < 8; ++i) {
      if (!tenant.empty() && i % 2 == 0) bad->push_back(submit(job(100 + i, tenant)));
      logs.push_back(submit(job(i, "good")));
    }
    Crowd crowd;
    for (const auto& log : logs) {
      const auto finish = log->wait();
      EXPECT_TRUE(finish && !finish->error);
      crowd.ids.push_back(log->ids());
    }
    crowd.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return crowd;
  }
  void expect_unharmed(const std::string& tenant, ErrorCode code, std::size_t least_tokens) {
    std::vector<std::vector<TokenId>> solo;
    for (int i = 0; i < 8; ++i) {
      const auto log = submit(job(i, "good"));
      EXPECT_TRUE(log->wait().has_value());
      solo.push_back(log->ids());
    }
    double quiet = 1e9, disturbed = 1e9;
    for (int round = 0; round < 2; ++round) {
      const Crowd peace = run_crowd("", nullptr);
      EXPECT_EQ(peace.ids, solo);
      quiet = std::min(quiet, peace.seconds);
      std::vector<std::shared_ptr<EventLog>> bad;
      const Crowd crowd = run_crowd(tenant, &bad);
      EXPECT_EQ(crowd.ids, solo);
      disturbed = std::min(disturbed, crowd.seconds);
      for (const auto& log : bad) {
        const auto finish = log->wait();
        ASSERT_TRUE(finish.has_value());
        EXPECT_EQ(finish->reason, FinishReason::kError);
        ASSERT_TRUE(finish->error.has_value());
        EXPECT_EQ(finish->error->code, code) << finish->error->message;
        EXPECT_GE(log->ids().size(), least_tokens);
      }
    }
    // Half as many requests again, which end early: half as much time again at the most, and room
    // for noise.
    EXPECT_LT(disturbed, 2.5 * quiet);
    EXPECT_TRUE(engine_->healthy());
    const EngineStats stats = settled_stats(*engine_);
    EXPECT_EQ(stats.num_running + stats.num_waiting, 0u);
  }

  std::shared_ptr<const TextAssets> assets_;
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<models::CausalLM> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Isolation, ARowWithNaNHarmsNeitherBitsNorSpeedOfOthers) {
  expect_unharmed("poisoned", ErrorCode::kModelFault, 0);
}

TEST_F(Isolation, AnExceptionInOneRequestHarmsNeitherBitsNorSpeedOfOthers) {
  expect_unharmed("throwing", ErrorCode::kInternal, 3);
}

}  // namespace
}  // namespace flotilla::engine
