// Takes out of a resumed attempt's output what an earlier attempt has delivered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flotilla/engine/text_engine.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::provider {

// One attempt, one thread. Does nothing when nothing was emitted.
class OutputTrim {
 public:
  OutputTrim(const protocol::EmittedBytes& emitted, std::size_t num_resume_ids);
  // Removes ids before the resume point, and text up to the emitted bytes of its channel. A call
  // that had begun keeps neither name nor id.
  void apply(engine::TokenEvent& event);
  // Emitted bytes that the output has not reproduced so far; not zero at the end means another
  // text.
  std::uint64_t remaining() const;

 private:
  std::uint64_t content_;
  std::uint64_t reasoning_;
  std::vector<std::uint64_t> calls_;
  std::uint64_t num_ids_;
};

}  // namespace flotilla::provider
