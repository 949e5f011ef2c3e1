// Computes the rows of a step. Implemented by ModelRunner and by the fakes of tests.
#pragma once

#include <cstddef>
#include <span>

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
};

}  // namespace flotilla::engine
