// wgmma and mma.sync must give the same bits, because products of few and of many tokens use one
// or the other; also with the 16 products of a step in other places, because attention takes them
// in an order that suits its loads.
#include <cstring>
#include <vector>

#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/wgmma.cuh"

namespace flotilla::backend::cuda {
namespace {

// One warpgroup: C[64][N] = A[64][K] * B[N][K]^T by both instructions, and by mma with
// other places within each step.
template <int N>
__global__ __launch_bounds__(128) void both_kernel(const bf16* a, const bf16* b, float* by_wgmma,
                                                   float* by_mma, float* by_quarters, int k) {
  extern __shared__ std::uint8_t raw[];
  std::uint8_t* tile = raw + ((1024u - (smem_u32(raw) & 1023u)) & 1023u);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float wg[N / 2] = {}, mm[N / 8][4] = {}, quarters[N / 8][4] = {};
  for (int k0 = 0; k0 < k; k0 += 64) {
    __syncthreads();
    for (int i = threadIdx.x; i < N * 8; i += 128) {
      const int row = i / 8, chunk = i % 8;
      *reinterpret_cast<uint4*>(tile + row * 128 + ((chunk ^ (row & 7)) << 4)) =
          *reinterpret_cast<const uint4*>(b + static_cast<std::size_t>(row) * k + k0 + chunk * 8);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    std::uint32_t af[4][4];
    for (int j = 0; j < 4; ++j) {
      const bf16* p = a + static_cast<std::size_t>(warp * 16 + g) * k + k0 + j * 16 + 2 * t;
      const bf16* q = p + static_cast<std::size_t>(8) * k;
      af[j][0] = *reinterpret_cast<const std::uint32_t*>(p);
      af[j][1] = *reinterpret_cast<const std::uint32_t*>(q);
      af[j][2] = *reinterpret_cast<const std::uint32_t*>(p + 8);
      af[j][3] = *reinterpret_cast<const std::uint32_t*>(q + 8);
    }
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Wgmma<N>::run(wg, af[j], wgmma_descriptor(smem_u32(tile)) + 2 * j, 1);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int nt = 0; nt < N / 8; ++nt) {
      std::uint32_t x0[4], x1[4];
      const std::uint32_t row = smem_u32(tile) + nt * 1024 + (lane & 7) * 128;
      load_matrix4(x0, row + (((lane >> 3) ^ (lane & 7)) << 4));
      load_matrix4(x1, row + (((4 + (lane >> 3)) ^ (lane & 7)) << 4));
      mma(mm[nt], af[0], x0[0], x0[1]);
      mma(mm[nt], af[1], x0[2], x0[3]);
      mma(mm[nt], af[2], x1[0], x1[1]);
      mma(mm[nt], af[3], x1[2], x1[3]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bf16* p = a + static_cast<std::size_t>(warp * 16 + g) * k + k0 + j * 16 + 4 * t;
        const uint2 low = *reinterpret_cast<const uint2*>(p);
        const uint2 high = *reinterpret_cast<const uint2*>(p + static_cast<std::size_t>(8) * k);
        const uint2 x = *reinterpret_cast<const uint2*>(tile + (nt * 8 + g) * 128 +
                                                        (((2 * j + t / 2) ^ g) << 4) + t % 2 * 8);
        const std::uint32_t rows[4] = {low.x, high.x, low.y, high.y};
        mma(quarters[nt], rows, x.x, x.y);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int row = warp * 16 + g + ((i >> 1) & 1) * 8, col = (i / 4) * 8 + 2 * t + (i & 1);
    by_wgmma[row * N + col] = wg[i];
    by_mma[row * N + col] = mm[i / 4][i % 4];
    by_quarters[row * N + col] = quarters[i / 4][i % 4];
  }
}

std::uint64_t next(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Kinds: small numbers; exponents from 2^-20 to 2^20; pairs that cancel; tiny products.
std::vector<std::uint16_t> numbers(std::size_t count, int kind, bool is_a, std::uint64_t seed) {
  std::vector<std::uint16_t> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = next(seed);
    int exponent = 124 + static_cast<int>(r % 5);
    if (kind == 1) exponent = 107 + static_cast<int>((r >> 8) % 41);
    if (kind == 3) exponent = 57 + static_cast<int>((r >> 8) % 20);
    v[i] = static_cast<std::uint16_t>(((r >> 63) << 15) | (exponent << 7) | ((r >> 20) & 127));
    if (kind == 2 && i % 4 >= 2) v[i] = static_cast<std::uint16_t>(v[i - 2] ^ (is_a ? 0 : 0x8000));
  }
  return v;
}

template <int N>
long long differences(const std::uint16_t* a, const std::uint16_t* b, float* out, int k,
                      cudaStream_t stream) {
  both_kernel<N><<<1, 128, N * 128 + 1024, stream>>>(reinterpret_cast<const bf16*>(a),
                                                     reinterpret_cast<const bf16*>(b), out,
                                                     out + 64 * N, out + 128 * N, k);
  std::vector<std::uint32_t> host(3 * 64 * N);
  if (cudaGetLastError() != cudaSuccess ||
      cudaMemcpyAsync(host.data(), out, host.size() * 4, cudaMemcpyDeviceToHost, stream) !=
          cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess)
    return -1;
  long long bad = 0;
  for (std::size_t i = 0; i < 64 * N; ++i)
    bad += host[i] != host[64 * N + i] || host[i] != host[128 * N + i];
  return bad;
}

}  // namespace

long long count_wgmma_differences(cudaStream_t stream, long long* outputs) {
  constexpr int kK = 5376;
  constexpr std::size_t kA = 64 * kK, kB = 256 * kK, kOut = 3 * 64 * 256;
  std::uint8_t* device = nullptr;
  if (cudaMalloc(&device, (kA + kB) * 2 + kOut * 4) != cudaSuccess) return -1;
  auto* a = reinterpret_cast<std::uint16_t*>(device);
  auto* b = a + kA;
  auto* out = reinterpret_cast<float*>(b + kB);
  long long total = 0;
  *outputs = 0;
  for (int kind = 0; kind < 4 && total >= 0; ++kind) {
    const auto ha = numbers(kA, kind, true, 11 + kind), hb = numbers(kB, kind, false, 71 + kind);
    if (cudaMemcpyAsync(a, ha.data(), kA * 2, cudaMemcpyHostToDevice, stream) != cudaSuccess ||
        cudaMemcpyAsync(b, hb.data(), kB * 2, cudaMemcpyHostToDevice, stream) != cudaSuccess) {
      total = -1;
      break;
    }
    for (const int k : {64, 1024, kK}) {
      const long long found[] = {
          differences<8>(a, b, out, k, stream), differences<16>(a, b, out, k, stream),
          differences<64>(a, b, out, k, stream), differences<128>(a, b, out, k, stream)};
      for (const long long n : found) total = n < 0 || total < 0 ? -1 : total + n;
      *outputs += 64 * (8 + 16 + 64 + 128);
    }
  }
  cudaFree(device);
  return total;
}

}  // namespace flotilla::backend::cuda
