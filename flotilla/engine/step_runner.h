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
};

}  // namespace flotilla::engine
