"""Writes flotilla/backend/cuda/device/wgmma.cuh: wrappers of wgmma for the tile widths in use."""
import pathlib

HEAD = r'''// clang-format off
// Written by bench/cuda/generate_wgmma.py. wgmma m64nNk16: bf16 in, float32 accumulators, B from shared memory, A from
// registers or from shared memory: start_shared() sets d, run_shared() adds.
#pragma once

#include "flotilla/backend/cuda/device/ptx.cuh"

namespace flotilla::backend::cuda {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// A tile of 64 bf16 (128 bytes) per row along K, 128-byte swizzle, 8 rows = 1024 bytes.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t at) {
  return (static_cast<std::uint64_t>(1) << 62) | (static_cast<std::uint64_t>(64) << 32) |
         (static_cast<std::uint64_t>(1) << 16) | ((at & 0x3ffffu) >> 4);
}

template <int N>
struct Wgmma;
'''


SHARED = (64,)  # widths that also exist with A from shared memory


def shared(n):
    r = n // 2
    regs = ",".join(f"%{i}" for i in range(r))
    text = ""
    for name, scale, constraint in (("start_shared", 0, "="), ("run_shared", 1, "+")):
        outs = ", ".join(f'"{constraint}f"(d[{i}])' for i in range(r))
        text += f'''  static __device__ __forceinline__ void {name}(float (&d)[{r}], std::uint64_t a, std::uint64_t b) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.b32 p, {scale}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{regs}}}, "
        "%{r}, %{r + 1}, p, 1, 1, 0, 0;\\n}}\\n"
        : {outs}
        : "l"(a), "l"(b));
  }}
'''
    return text


def one(n):
    r = n // 2
    regs = ",".join(f"%{i}" for i in range(r))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(r))
    return f'''
template <>
struct Wgmma<{n}> {{
  static __device__ __forceinline__ void run(float (&d)[{r}], const std::uint32_t (&a)[4], std::uint64_t b, int accumulate) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{r + 5}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{regs}}}, "
        "{{%{r},%{r + 1},%{r + 2},%{r + 3}}}, %{r + 4}, p, 1, 1, 0;\\n}}\\n"
        : {outs}
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
  }}
{shared(n) if n in SHARED else ""}}};
'''


root = pathlib.Path(__file__).resolve().parent.parent.parent
with open(root / "flotilla/backend/cuda/device/wgmma.cuh", "w") as f:
    f.write(HEAD)
    for n in (8, 16, 32, 64, 128, 232, 256):
        f.write(one(n))
    f.write("\n}  // namespace flotilla::backend::cuda\n".replace("}", "}"[:1]))
