// What the dispatcher asks of money: hold the worst case before a job starts, settle it when it has
// ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/coordinator/money/job_money.h"

namespace flotilla::coordinator {

// A job that is over, however it ended.
struct EndedJob {
  JobId job;
  AccountId account;
  ApiKeyId key;
  std::string model;
  Reservation reservation;  // not held where nothing had to be paid
  bool delivered = false;   // the client saw something of it, or could have
  TokenCounts tokens;
  std::vector<std::pair<ProviderId, std::uint64_t>> served;  // tokens that each node gave
  std::string outcome;
};

// Core strand only.
class Till {
 public:
  virtual ~Till() = default;
  // Whether a job must be paid for before that node starts it.
  virtual bool must_hold(const std::string& model, AccountId payer,
                         const ProviderId& node) const = 0;
  // `done` runs later on the core strand, never inside the call.
  virtual void hold(ReserveOrder order, std::function<void(Result<Reservation>)> done) = 0;
  // A job whose money is held goes on at a node that it was not held for.
  virtual void continued_on(const JobId& job, const ProviderId& node) = 0;
  // So much of a stream that goes on has been handed to its client.
  virtual void delivered(const JobId& job, const TokenCounts& so_far) = 0;
  // Every job, once.
  virtual void end(EndedJob job) = 0;
};

}  // namespace flotilla::coordinator
