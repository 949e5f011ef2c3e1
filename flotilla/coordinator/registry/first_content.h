// The expected time to first content of a job on a node: what nodes are compared by. Built from
// what was measured lately, so each part tells where it comes from and how old that is.
#pragma once

#include <string_view>

#include "flotilla/coordinator/registry/provider_record.h"

namespace flotilla::coordinator {

enum class Source : std::uint8_t {
  kNothing,   // the part is zero
  kMeasured,  // by the coordinator, on this node
  kReported,  // by the node
  kFleet,     // by the coordinator, on other nodes
  kDefault,   // nobody knows yet
};
std::string_view to_string(Source source);

struct TimePart {
  double seconds = 0;
  Source source = Source::kNothing;
  Clock::Instant at{};  // of the evidence; zero for a default
};

struct FirstContent {
  TimePart network;  // a round trip
  TimePart wait;     // prompts ahead of it on the node, jobs that wait in its engine
  TimePart load;     // of a model that is not resident
  TimePart prefill;  // of the prompt itself
  double seconds() const { return network.seconds + wait.seconds + load.seconds + prefill.seconds; }
};

// `tokens`: of the prompt that are to be computed. `fleet`: what other nodes took per token of this
// model.
FirstContent expect_first_content(const ProviderRecord& provider, const ModelSlot& slot,
                                  const Evidence& fleet, std::int64_t tokens, Clock::Instant now);
// The part for `tokens` alone.
TimePart expect_prefill(const ModelSlot& slot, const Evidence& fleet, std::int64_t tokens,
                        Clock::Instant now);
TimePart expect_load(const ModelSlot& slot);

// Times of a fifth more or less are the same step: the order of the index is by steps.
std::uint32_t time_step(double seconds);

}  // namespace flotilla::coordinator
