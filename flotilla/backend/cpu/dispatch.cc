#include "flotilla/backend/cpu/kernels.h"

namespace flotilla::backend {

namespace cpu_portable {
extern const CpuKernels kKernels;
}
#if defined(FLOTILLA_CPU_X86)
namespace cpu_avx2 {
extern const CpuKernels kKernels;
}
namespace cpu_avx512 {
extern const CpuKernels kKernels;
}
#endif

const CpuKernels* find_cpu_kernels(CpuTarget target) {
#if defined(FLOTILLA_CPU_X86)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool has_avx512 =
      has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (target) {
    case CpuTarget::kScalar:
      return &cpu_portable::kKernels;
    case CpuTarget::kAvx2:
      return has_avx2 ? &cpu_avx2::kKernels : nullptr;
    case CpuTarget::kAvx512:
      return has_avx512 ? &cpu_avx512::kKernels : nullptr;
    case CpuTarget::kBest:
      break;
  }
  if (has_avx512) return &cpu_avx512::kKernels;
  if (has_avx2) return &cpu_avx2::kKernels;
  return &cpu_portable::kKernels;
#else
  if (target == CpuTarget::kAvx2 || target == CpuTarget::kAvx512) return nullptr;
  return &cpu_portable::kKernels;
#endif
}

}  // namespace flotilla::backend
