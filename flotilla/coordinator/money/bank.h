// The one thread that writes money. What it is asked while it commits makes the next transaction:
// thousands of reservations and settlements a second cost a few commits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/money/job_money.h"
#include "flotilla/coordinator/money/money_view.h"
#include "flotilla/coordinator/money/retention.h"

namespace flotilla::coordinator {

struct BankOptions {
  std::int64_t fee_basis_points = 0;  // of every charge, for the operator
  std::int64_t recovery_s = 120;      // how long jobs of an earlier run may wait for their nodes
  Retention retention;
  std::size_t max_waiting = 16'384;  // reservations beyond it are refused
  // Another server has begun a run on the same database: from now on nothing of this one is
  // written, and reservations are refused. On the bank's thread, once.
  std::function<void()> on_superseded = {};
};

// A job that an earlier run of the server left open.
struct OpenJob {
  SettleOrder order;  // all but what became of it
  bool streamed = false;
  std::int64_t delivered = 0;          // tokens that its client surely got
  std::vector<ProviderId> nodes = {};  // that it was given to
};

class Bank {
 public:
  using Answered = std::function<void(Result<Reservation>)>;

  // Begins a run. `clock` must outlive it. `on_view` runs on the bank's thread after a change, and
  // once before this returns.
  static Result<std::unique_ptr<Bank>> open(
      store::Database database, const Clock& clock, BankOptions options,
      std::function<void(std::shared_ptr<const MoneyView>)> on_view);
  // Writes what is queued, for a few seconds at most; what it could not write stays open for the
  // next run.
  ~Bank();
  Bank(const Bank&) = delete;
  Bank& operator=(const Bank&) = delete;

  // The rest from any thread; nothing blocks.

  // `done` runs on the bank's thread once the reservation is committed, or refused:
  // kInsufficientFunds with the numbers, kUnavailable when the database does not take it. When too
  // many wait it is refused inside this call.
  void reserve(ReserveOrder order, Answered done);
  // Tried again until the database takes it; a job is settled once however often it is told.
  void settle(SettleOrder order);
  // The reserved job goes on at that node too: after a crash it is asked as well.
  void continued_on(const JobId& job, const ProviderId& node);
  // So much of a stream that goes on has reached its client: written within a second, and all that
  // it is charged for when this process dies.
  void delivered(const JobId& job, const TokenCounts& so_far);
  // Use that costs nothing: counted within a second, and lost in a crash.
  void count(const UsageKey& key, const UsageCounts& counts);
  // Other changes, each in transactions of its own; false when too many wait.
  bool post(std::function<void(store::Database&)> task);

  std::shared_ptr<const MoneyView> view() const;
  // Left by earlier runs; the first call takes them.
  std::vector<OpenJob> take_open_jobs();
  // Until every reservation so far is answered. Not from the bank's thread.
  void wait_until_answered();

 private:
  struct Impl;
  explicit Bank(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::coordinator
