// Computes the rows of a step. Implemented by ModelRunner and by the fakes of tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/backend/shortlist.h"
#include "flotilla/engine/sequence.h"

namespace flotilla::engine {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // The logits of the rows that want them, in order, joined; valid until the next call. Throws
  // when the device fails. The states of the sequences have room; they are advanced by the caller.
  virtual std::span<const float> run(std::span<const ScheduledRow> rows) = 0;

  // Whether rows may ask for their most probable token in the place of logits, because that is
  // cheaper here; and those tokens after run(), in order: ties to the lower id, -1 when a logit is
  // not finite.
  virtual bool can_choose() const { return false; }
  virtual std::span<const TokenId> chosen() const { return {}; }

  // A runner that can choose also serves rows that stay: run() need not wait for them, and until
  // the next call the first candidates of each, or all its logits, may be asked for once. Rows are
  // named by their place among those that stay. These throw as run() does.
  virtual void wait() {}
  virtual std::vector<backend::Shortlist> shortlist(std::span<const backend::ShortlistRow>) {
    return {};
  }
  // Joined; valid until the next call.
  virtual std::span<const float> read_logits(std::span<const std::int32_t>) { return {}; }
};

}  // namespace flotilla::engine
