// The two models of docs/admission.md. Test code only.
#pragma once

#include "flotilla/gates/judge.h"

namespace flotilla::gates {

inline constexpr std::uint64_t kGigabyte = 1'000'000'000;

// All resident: 60 layers, 50 of them with a window of 1,024.
inline ModelFacts flagship(bool headers_read = false) {
  ModelFacts model;
  model.size.listed_bytes = 18'400'000'000;
  if (headers_read) model.size.weight_bytes = 18'400'000'000;
  model.size.min_memory_bytes = 32 * kGiB;
  model.state.classes = {{819'200, 1024}, {81'920, 0}};
  return model;
}

// Its experts stay on disk.
inline ModelFacts streamed(std::uint64_t listed_gb) {
  ModelFacts model;
  model.size.listed_bytes = listed_gb * kGigabyte;
  model.size.min_memory_bytes = 36 * kGiB;
  model.state.fixed_bytes = 606'720;
  model.state.classes = {{44'032, 128}, {6'880, 0}};
  return model;
}

// Nothing runs on it.
inline NodeFacts idle_node(std::uint64_t memory_gib) {
  NodeFacts node;
  node.memory_bytes = memory_gib * kGiB;
  node.usable_bytes = usable_memory(node.memory_bytes);
  node.free_for_load = node.usable_bytes;
  return node;
}

}  // namespace flotilla::gates
