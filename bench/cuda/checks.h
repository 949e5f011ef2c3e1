// The parts of flotilla-cuda-check. Each prints its findings and returns the number of failures.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/backend/backend.h"

namespace flotilla::cuda_check {

int check_self_test(backend::Backend& backend);
// Every operation against the definition of the CPU backend on the same inputs, rounded to bf16.
int check_ops(backend::Backend& backend);
// Outputs of a row alone against the same row among others, by memcmp, and repeated runs.
int check_bits(backend::Backend& backend, bool flagship_shapes);
// The reference model and the bundled model below `source`.
int check_models(backend::Backend& backend, const std::string& source);

// A fault while the bundled model answers. No backend may hold the card.
int check_recovery(const std::string& source);

// The same references on the CPU with bf16 roundings: how far bf16 alone is from float32.
int report_bf16(const std::string& source);

struct FlagshipOptions {
  int layers = 60;
  bool only_profile = false;  // no whole steps, only single operations
};
// Gemma 4 31B with made-up weights on the card: tables of whole steps.
int bench_flagship(backend::Backend& backend, const FlagshipOptions& options);

// Products of every packed format on one of the flagship's shapes: reading rate and TFLOP/s.
int bench_formats(backend::Backend& backend);
// What the bit-contract costs. No backend may hold the card. `cublas_lt`: path of the library,
// empty: where the loader finds it.
int measure_relaxations(const std::string& cublas_lt);

}  // namespace flotilla::cuda_check
