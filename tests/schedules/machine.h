// A model folder, and ways to run it: each combination of threads, instruction set and weight
// layout is a variant that must give the same bits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::schedules {

struct Variant {
  int num_threads = 1;
  backend::CpuTarget target = backend::CpuTarget::kBest;
  bool pack_weights = true;
  std::optional<int> cuda_device = {};  // in the place of the processor
};
std::string to_text(const Variant& variant);
// Those that this processor can run, for each number of threads in turn. The first is the
// reference.
std::vector<Variant> variants_here(const std::vector<int>& thread_counts);

// Members in the order of construction: the model goes before its backend.
struct Machine {
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<models::CausalLM> model;
};

// `broken_rows` > 0 breaks the bit-contract from so many rows on (CpuOptions::test_split_k_rows).
Result<Machine> make_machine(const checkpoint::Checkpoint& checkpoint, const Variant& variant,
                             int broken_rows);

}  // namespace flotilla::schedules
