// The mixed load in small: what must hold whatever the speed.
#include "load.h"

#include <gtest/gtest.h>

#include "flotilla/engine/model_engine.h"

namespace flotilla::bench {
namespace {

TEST(Percentiles, AreRanksNotMeans) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Percentiles p = percentiles(samples);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p95, 95);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.max, 100);
  EXPECT_EQ(percentiles({}).max, 0);
  EXPECT_EQ(percentiles({3}).p50, 3);
}

TEST(MixedLoad, NobodyStarvesNothingLeaksAndAnswersAreThoseOfSoloRuns) {
  engine::ModelEngineOptions model;
  model.folder = FLOTILLA_SOURCE_DIR "/models/flotilla-tiny";
  model.num_threads = 1;
  model.scheduler = {.max_batch_tokens = 64, .prefill_chunk = 48, .max_sequences = 8};
  model.kv_bytes = 16 << 20;  // for some five of the longest: preemptions happen
  const auto engine = engine::load_model_engine(model);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  LoadOptions options;
  options.num_clients = 12;
  options.max_prompt = 400;
  options.max_output = 24;
  options.cancel_percent = 20;
  const LoadResult r = run_load(**engine, options);
  EXPECT_TRUE(r.errors.empty()) << r.errors.front();
  EXPECT_EQ(r.num_finished + r.num_cancelled, r.num_requests);
  EXPECT_GE(r.num_cancelled, 1);
  EXPECT_EQ(r.num_different, 0);
  EXPECT_EQ(r.left_requests, 0u);
  EXPECT_EQ(r.left_bytes, 0u);
  // Nobody waits longer for his first token than all requests together take one after another; a
  // starved one would wait for the end of the load. Twice, as the machine may be busy.
  EXPECT_LT(r.first_token_s.max, 2 * r.solo_s);
  // Half of the requests are there from the beginning: with all of them treated alike, a short
  // prompt does not wait for the long ones.
  EXPECT_LT(r.first_token_of_short_s.p50, r.wall_s / 2);
}

}  // namespace
}  // namespace flotilla::bench
