#include "machine.h"

namespace flotilla::schedules {

std::string to_text(const Variant& variant) {
  if (variant.cuda_device) return "cuda:" + std::to_string(*variant.cuda_device);
  std::string text = std::to_string(variant.num_threads) + " thread(s), ";
  text += variant.target == backend::CpuTarget::kAvx2 ? "AVX2" : "best target";
  return text + (variant.pack_weights ? ", packed" : ", as stored");
}

std::vector<Variant> variants_here(const std::vector<int>& thread_counts) {
  const bool two_targets =
      backend::make_cpu_backend({.num_threads = 1, .target = backend::CpuTarget::kAvx512}).ok();
  std::vector<Variant> variants;
  for (const int threads : thread_counts) {
    variants.push_back({.num_threads = threads});
    variants.push_back({.num_threads = threads, .pack_weights = false});
    if (two_targets) {
      variants.push_back({.num_threads = threads, .target = backend::CpuTarget::kAvx2});
    }
  }
  return variants;
}

Result<Machine> make_machine(const checkpoint::Checkpoint& checkpoint, const Variant& variant,
                             int broken_rows) {
  Machine machine;
  if (variant.cuda_device) {
    FLOTILLA_TRY(machine.backend, backend::make_cuda_backend(*variant.cuda_device));
    FLOTILLA_TRY(machine.model, models::load_model(checkpoint, *machine.backend));
    return machine;
  }
  FLOTILLA_TRY(machine.backend, backend::make_cpu_backend({.num_threads = variant.num_threads,
                                                           .target = variant.target,
                                                           .pack_weights = variant.pack_weights,
                                                           .test_split_k_rows = broken_rows}));
  FLOTILLA_TRY(machine.model, models::load_model(checkpoint, *machine.backend));
  return machine;
}

}  // namespace flotilla::schedules
