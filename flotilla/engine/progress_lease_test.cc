#include "flotilla/engine/progress_lease.h"

#include <gtest/gtest.h>

#include <map>

#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

using std::chrono::milliseconds;

const LeaseOptions kLimits{.admission = milliseconds(100),
                           .prefill = milliseconds(200),
                           .decode = milliseconds(300),
                           .slow_reader = milliseconds(400)};

// An engine on a clock that stands still.
struct Bench {
  explicit Bench(EngineOptions options = fake_options()) {
    options.clock = &clock;
    if (options.leases.admission == LeaseOptions{}.admission) options.leases = kLimits;
    auto owned = std::make_unique<FakeRunner>();
    core = std::make_unique<EngineCore>(options, layout, std::move(owned),
                                        std::make_shared<FakeOutputs>());
  }
  RequestId add(std::shared_ptr<const PreparedJob> job, bool full = false) {
    const RequestId id{++last_id};
    core->accept(id, std::move(job), [this, id, full](TokenEvent event) {
      tokens[id.value] += event.ids.size();
      if (event.finish) finishes[id.value] = *event.finish;
      return !full;
    });
    return id;
  }
  void step_after(milliseconds time) {
    clock.advance(time);
    core->step();
    core->check_integrity();
  }
  std::optional<ErrorCode> error(RequestId id) {
    const auto it = finishes.find(id.value);
    if (it == finishes.end() || !it->second.error) return std::nullopt;
    return it->second.error->code;
  }

  FakeClock clock;
  state::StateLayout layout = fake_layout();
  std::unique_ptr<EngineCore> core;
  std::map<std::uint64_t, Finish> finishes;
  std::map<std::uint64_t, std::size_t> tokens;
  std::uint64_t last_id = 0;
};

TEST(ProgressLease, IsRenewedByAnyProgress) {
  FakeClock clock;
  ProgressLease lease(clock.now(), milliseconds(0));
  lease.observe(Phase::kDecode, 1, true, clock.now());
  const auto first = *lease.ends(kLimits);
  EXPECT_EQ(first, clock.now() + milliseconds(300));
  clock.advance(milliseconds(250));
  lease.observe(Phase::kDecode, 1, true, clock.now());
  EXPECT_EQ(*lease.ends(kLimits), first);
  lease.observe(Phase::kDecode, 2, true, clock.now());
  EXPECT_EQ(*lease.ends(kLimits), clock.now() + milliseconds(300));
}

TEST(ProgressLease, WithoutLimitsNeverEnds) {
  ProgressLease lease(Clock::Instant{}, milliseconds(0));
  const milliseconds none(0);
  EXPECT_FALSE(lease.ends({none, none, none, none, none}).has_value());
}

TEST(EngineLeases, ARequestThatIsNeverAdmittedIsRefusedAsOverload) {
  EngineOptions options = fake_options();
  options.scheduler.max_sequences = 1;
  Bench bench(options);
  const RequestId runs = bench.add(fake_job(1, 20, 500));
  const RequestId waits = bench.add(fake_job(2, 20, 5));
  for (int i = 0; i < 9; ++i) bench.step_after(milliseconds(10));
  EXPECT_FALSE(bench.error(waits).has_value());
  for (int i = 0; i < 3; ++i) bench.step_after(milliseconds(10));
  EXPECT_EQ(bench.error(waits), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(bench.error(runs).has_value());  // it moves: no limit on the whole
  for (int i = 0; i < 500; ++i) bench.step_after(milliseconds(10));
  EXPECT_EQ(bench.finishes.at(runs.value).reason, FinishReason::kLength);
  EXPECT_GT(bench.clock.now() - Clock::Instant{}, milliseconds(4000));
}

TEST(EngineLeases, AReaderThatTakesNothingLosesItsRequestAlone) {
  Bench bench;
  const RequestId slow = bench.add(fake_job(1, 20, 500), true);
  const RequestId other = bench.add(fake_job(2, 20, 300));
  for (int i = 0; i < 39; ++i) bench.step_after(milliseconds(10));
  EXPECT_FALSE(bench.error(slow).has_value());
  for (int i = 0; i < 5; ++i) bench.step_after(milliseconds(10));
  EXPECT_EQ(bench.error(slow), ErrorCode::kDeadlineExceeded);
  EXPECT_NE(bench.finishes.at(slow.value).error->message.find("reader"), std::string::npos);
  for (int i = 0; i < 300; ++i) bench.step_after(milliseconds(10));
  EXPECT_EQ(bench.finishes.at(other.value).reason, FinishReason::kLength);
}

// One byte now and then is progress: a slow reader is not a lost one.
TEST(EngineLeases, AReaderThatIsMerelySlowKeepsItsRequest) {
  Bench bench;
  const RequestId slow = bench.add(fake_job(1, 20, 30), true);
  for (int i = 0; i < 31; ++i) {
    bench.step_after(milliseconds(390));
    bench.core->resume_output(slow);
  }
  EXPECT_EQ(bench.finishes.at(slow.value).reason, FinishReason::kLength);
}

TEST(EngineLeases, APausedEngineKnowsWhenToWake) {
  Bench bench;
  const RequestId slow = bench.add(fake_job(1, 20, 500), true);
  bench.step_after(milliseconds(1));
  EXPECT_FALSE(bench.core->has_work());
  const auto deadline = bench.core->next_deadline();
  ASSERT_TRUE(deadline.has_value());
  EXPECT_EQ(*deadline, bench.clock.now() + milliseconds(400));
  bench.step_after(milliseconds(400));
  EXPECT_EQ(bench.error(slow), ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(bench.core->next_deadline().has_value());  // nothing to wake for
}

TEST(EngineLeases, AFirstTokenThatComesTooLateIsNotComputed) {
  EngineOptions options = fake_options();
  options.scheduler.prefill_chunk = 10;
  Bench bench(options);
  auto late = fake_job(1, 200, 5);
  late->job.first_token_within = milliseconds(50);
  auto in_time = fake_job(2, 15, 50);
  in_time->job.first_token_within = milliseconds(50);
  const RequestId first = bench.add(late);
  const RequestId second = bench.add(in_time);
  for (int i = 0; i < 60; ++i) bench.step_after(milliseconds(10));
  EXPECT_EQ(bench.error(first), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(bench.tokens[first.value], 0u);
  EXPECT_EQ(bench.finishes.at(second.value).reason, FinishReason::kLength);
}

}  // namespace
}  // namespace flotilla::engine
