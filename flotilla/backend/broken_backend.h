// A backend with a known fault, to prove that the checks of the bit-contract can fail. Only tests
// ask for it, by CpuOptions::test_split_k_rows or by calling this; no setting, flag of a program or
// environment variable of flotilla leads here.
//
// From `split_k_rows` rows of x on, linear() and linear_group() multiply the two halves of k apart
// and add the results: what a kernel that splits k among threads does, and the usual reason why
// batching changes answers. Results stay right to rounding; with fewer rows, and in everything
// else, they are those of the inner backend. So a sequence decoded alone and the same sequence
// decoded among others, or prefilled in chunks of another size, differ in some low bits: a harness
// that compares them must report it.
//
//   backend::make_cpu_backend({.test_split_k_rows = 3})
#pragma once

#include <memory>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {

std::unique_ptr<Backend> make_broken_backend(std::unique_ptr<Backend> inner, int split_k_rows);

}  // namespace flotilla::backend
