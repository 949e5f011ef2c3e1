// Norms, activations, rotations and reductions; forms of the members of CpuKernels of the same
// names.
#pragma once

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/kernels/lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

void rms_norm_rows(const float* x, const float* weight, float eps, float* out, std::size_t rows,
                   std::size_t dim);
void norm_add_rows(const float* x, const float* weight, float eps, float scale, float* residual,
                   std::size_t rows, std::size_t dim);
void gelu_mul_array(const float* gate, const float* up, float* out, std::size_t count);
void softcap_array(float* x, float cap, std::size_t count);
void rope_token(float* x, const float* cosines, const float* sines, int num_pairs, int num_heads,
                int head_dim);
void exp_array(const float* x, float* out, std::size_t count);
void log_array(const float* x, float* out, std::size_t count);
void tanh_array(const float* x, float* out, std::size_t count);
float sum_array(const float* x, std::size_t count);
float max_array(const float* x, std::size_t count);
std::uint32_t read_array(const std::byte* data, std::size_t bytes);

void attention_item(const AttentionItem& item, std::byte* scratch);

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
