// From the checkpoint's layout to packed blocks of any format, and single elements back.
#include "flotilla/backend/cuda/device/block_formats.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/stored.cuh"

namespace flotilla::backend::cuda {
namespace {

// The block of a format cut into what the packing needs to know.
struct Shape {
  int code_bits;   // 4, 8, 16
  int code_bytes;  // of a block
  int block_bytes;
  int halves;       // scales per row
  int scale_power;  // a scale is stored times 2^scale_power
};
template <class Format>
__host__ __device__ constexpr Shape shape(int halves, int power) {
  return {Format::kCodeBytes * 8 / (kRows * kGroup), Format::kCodeBytes, Format::kBlockBytes,
          halves, power};
}
__host__ __device__ inline Shape shape_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::kAffine4:
      return shape<Affine4>(1, 130);
    case BlockFormat::kAffine4Fine:
      return shape<Affine4Fine>(2, 130);
    case BlockFormat::kAffine8:
      return shape<Affine8>(1, 133);
    case BlockFormat::kAffine8Fine:
      return shape<Affine8Fine>(2, 133);
    case BlockFormat::kE2M1:
      return shape<E2M1>(2, 126);
    case BlockFormat::kE4M3:
      return shape<E4M3>(2, 120);
    case BlockFormat::kDense:
      break;
  }
  return shape<Dense>(0, 0);
}
__host__ __device__ inline bool has_powers(BlockFormat format) {
  return format == BlockFormat::kE2M1 || format == BlockFormat::kE4M3;
}

constexpr int four(const int (&v)[4]) { return v[0] | v[1] << 4 | v[2] << 8 | v[3] << 12; }
constexpr int kMagnitudes = four(kE2M1Bits.magnitude), kSigns = four(kE2M1Bits.sign);

// Where element (row, column) of a block lies: byte offset of its 32-bit word, and its bits there.
struct Place {
  int word, bit;
  int sign = -1;  // not negative: of the highest bit, which lies apart
  __device__ std::uint32_t put(std::uint32_t code) const {
    if (sign < 0) return __funnelshift_l(code, code, bit);
    return (code & 7u) << bit | (code >> 3) << sign;
  }
  __device__ std::uint32_t take(std::uint32_t v, int bits) const {
    if (sign < 0) return __funnelshift_r(v, v, bit) & ((1u << bits) - 1);
    return ((v >> bit) & 7u) | ((v >> sign) & 1u) << 3;
  }
};
__device__ Place place_of(BlockFormat format, int bits, int row, int column) {
  const int tile = row / 16, step = column / 16, c = column % 16;
  const int lane = row % 16 / 2 * 4 + c % 8 / 2;
  const int j = (row & 1) | ((c / 8) << 1), high = c & 1;  // the half of register a_j
  if (bits == 4) {
    const int word = ((tile * 32 + lane) * 4 + step) * 4;
    if (format == BlockFormat::kE2M1)
      return {word, (kMagnitudes >> 4 * j & 15) + 16 * high, (kSigns >> 4 * j & 15) + 16 * high};
    const int bit = high == 0 ? (j < 3 ? 4 * j : 28) : (j < 3 ? 4 * j + 16 : 12);
    return {word, (bit + 3) & 31};  // that of nibble 28 wraps around
  }
  if (bits == 8) {
    const int word = (((tile * 2 + step / 2) * 32 + lane) * 4 + step % 2 * 2 + j / 2) * 4;
    return {word, 8 * (j & 1) + 16 * high};
  }
  return {(((tile * 4 + step) * 32 + lane) * 4 + j) * 4, 16 * high};
}

struct Sources {
  GenericMatrix first, second;
  bool turns;
  __device__ const GenericMatrix& of(int row) const {
    return turns && row % 2 == 1 ? second : first;
  }
  __device__ int row_of(int row) const { return turns ? row / 2 : row; }
};

// The scale of an affine format as it is packed; false: out of range.
__device__ bool pack_scale(const Shape& s, float scale, bf16* out) {
  *out = __float2bfloat16(scale * 0x1p65f * (s.scale_power == 130 ? 0x1p65f : 0x1p68f));
  return fabsf(scale) < (s.scale_power == 130 ? 0x1p-2f : 0x1p-5f);
}

// One thread block per packed block.
__global__ void pack_kernel(BlockFormat format, const __grid_constant__ Sources from,
                            std::uint8_t* packed, int n, int k, int* out_of_range) {
  grid_launch_dependents();
  grid_wait();
  const Shape s = shape_of(format);
  const std::size_t block = blockIdx.x;
  const int groups = k / kGroup;
  const int rb = static_cast<int>(block / groups), g = static_cast<int>(block % groups);
  std::uint8_t* to = packed + block * s.block_bytes;
  // Put together in shared memory, where elements may come in the order of the checkpoint.
  extern __shared__ std::uint32_t words[];
  for (int i = threadIdx.x; i < s.code_bytes / 4; i += blockDim.x) words[i] = 0;
  __syncthreads();
  bool bad = false;
  for (int i = threadIdx.x; i < kRows * kGroup; i += blockDim.x) {
    const int r = i / kGroup, c = i % kGroup, row = rb * kRows + r;
    if (row >= n) continue;
    const std::uint32_t code = code_at(from.of(row), from.row_of(row), g * kGroup + c);
    if (format == BlockFormat::kE4M3 && (code & 0x7fu) == 0x7fu) bad = true;
    const Place p = place_of(format, s.code_bits, r, c);
    atomicOr(&words[p.word / 4], p.put(code));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < s.code_bytes / 4; i += blockDim.x)
    reinterpret_cast<std::uint32_t*>(to)[i] = words[i];
  for (int i = threadIdx.x; i < s.halves * kRows; i += blockDim.x) {
    const int r = i % kRows, half = i / kRows, row = rb * kRows + r;
    std::uint8_t* scales = to + s.code_bytes;
    const GenericMatrix& w = from.of(row);
    const std::size_t at = row >= n ? 0
                                    : static_cast<std::size_t>(from.row_of(row)) * (w.k / w.group) +
                                          (g * kGroup + half * (kGroup / 2)) / w.group;
    if (has_powers(format)) {
      const int exponent = row >= n ? 0 : w.scales[at];
      const int stored = exponent + s.scale_power;
      if (exponent == 255 || stored > 254) bad = true;
      scales[r * 2 + half] = static_cast<std::uint8_t>(stored);
      continue;
    }
    bf16* p = reinterpret_cast<bf16*>(scales) + i * 2;
    p[0] = p[1] = __float2bfloat16(0.0f);
    if (row >= n) continue;
    if (!pack_scale(s, scale_at(w.scales, w.scale, at), p)) bad = true;
    p[1] = __float2bfloat16(scale_at(w.biases, w.scale, at));
  }
  if (bad) *out_of_range = 1;  // every writer writes the same
}

__device__ float block_weight(BlockFormat format, const std::uint8_t* packed, int groups, int row,
                              int column) {
  const Shape s = shape_of(format);
  const std::uint8_t* block =
      packed + (static_cast<std::size_t>(row / kRows) * groups + column / kGroup) * s.block_bytes;
  const int r = row % kRows, c = column % kGroup;
  const Place p = place_of(format, s.code_bits, r, c);
  const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(block + p.word);
  const std::uint32_t code = p.take(word, s.code_bits);
  if (format == BlockFormat::kDense) return __uint_as_float(code << 16);
  const int half = s.halves == 2 ? c / (kGroup / 2) : 0;
  const std::uint8_t* scales = block + s.code_bytes;
  if (has_powers(format)) {
    const float scale =
        e8m0_to_float(static_cast<std::uint8_t>(scales[r * 2 + half] - s.scale_power));
    return scale * (format == BlockFormat::kE2M1 ? e2m1_to_float(code)
                                                 : e4m3_to_float(static_cast<std::uint8_t>(code)));
  }
  const bf16* pair = reinterpret_cast<const bf16*>(scales) + (half * kRows + r) * 2;
  const float scale =
      __bfloat162float(pair[0]) * 0x1p-65f * (s.scale_power == 130 ? 0x1p-65f : 0x1p-68f);
  return fmaf(static_cast<float>(code), scale, __bfloat162float(pair[1]));
}

__global__ void embedding_kernel(BlockFormat format, const std::uint8_t* packed, int k,
                                 const __grid_constant__ TokenIds ids, float factor, Values out) {
  grid_launch_dependents();
  grid_wait();
  const int token = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= k) return;
  const float w = block_weight(format, packed, k / kGroup, token_at(ids, token), column) * factor;
  const std::size_t at = static_cast<std::size_t>(token) * k + column;
  if (out.is_f32) {
    static_cast<float*>(out.data)[at] = w;
  } else {
    static_cast<bf16*>(out.data)[at] = __float2bfloat16(w);
  }
}

__device__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

__global__ void synthesize_kernel(BlockFormat format, std::uint8_t* packed, int k,
                                  std::uint64_t seed) {
  grid_launch_dependents();
  grid_wait();
  const Shape s = shape_of(format);
  const std::size_t block = blockIdx.x;
  std::uint8_t* to = packed + block * s.block_bytes;
  const float unit = rsqrtf(static_cast<float>(k));
  for (int i = threadIdx.x; i < s.code_bytes / 4; i += blockDim.x) {
    auto v = static_cast<std::uint32_t>(mix(seed + (block * 4096 + i) * 0x9e3779b97f4a7c15u));
    if (format == BlockFormat::kE4M3) v &= 0xf7f7f7f7u;  // no NaN
    if (format == BlockFormat::kDense) {
      const float a = static_cast<float>(v & 0xffffu) / 32768.0f - 1.0f;
      const float b = static_cast<float>(v >> 16) / 32768.0f - 1.0f;
      v = pack_bf16(a * unit * 1.7f, b * unit * 1.7f);
    }
    reinterpret_cast<std::uint32_t*>(to)[i] = v;
  }
  const float deviation = s.code_bits == 4 ? 4.6f : 74.0f;  // of affine codes
  const float middle = s.code_bits == 4 ? 7.5f : 127.5f;
  for (int i = threadIdx.x; i < s.halves * kRows; i += blockDim.x) {
    std::uint8_t* scales = to + s.code_bytes;
    if (has_powers(format)) {
      // Codes of a few units, e4m3 of some hundred.
      const int exponent = 127 - (format == BlockFormat::kE2M1 ? 8 : 14);
      scales[i] = static_cast<std::uint8_t>(exponent + s.scale_power);
      continue;
    }
    bf16* p = reinterpret_cast<bf16*>(scales) + i * 2;
    const float scale = __bfloat162float(__float2bfloat16(unit / deviation));
    pack_scale(s, scale, p);
    p[1] = __float2bfloat16(-middle * scale);
  }
}

unsigned blocks_of(int n, int k) {
  return static_cast<unsigned>((n + kRows - 1) / kRows * (k / kGroup));
}

}  // namespace

cudaError_t pack_blocks(BlockFormat format, const GenericMatrix& first, const GenericMatrix* second,
                        std::uint8_t* packed, int* out_of_range, cudaStream_t stream) {
  const bool turns = second != nullptr;
  const Sources from{first, turns ? *second : first, turns};
  const int n = turns ? 2 * first.n : first.n;
  return launch(pack_kernel, dim3(blocks_of(n, first.k)), 256,
                static_cast<std::size_t>(shape_of(format).code_bytes), stream, format, from, packed,
                n, first.k, out_of_range);
}

cudaError_t embedding_blocks(BlockFormat format, const std::uint8_t* packed, int k,
                             const TokenIds& ids, int tokens, float factor, Values out,
                             cudaStream_t stream) {
  return launch(embedding_kernel,
                dim3(static_cast<unsigned>((k + 255) / 256), static_cast<unsigned>(tokens)), 256, 0,
                stream, format, packed, k, ids, factor, out);
}

cudaError_t synthesize_blocks(BlockFormat format, std::uint8_t* packed, int n, int k,
                              std::uint64_t seed, cudaStream_t stream) {
  return launch(synthesize_kernel, dim3(blocks_of(n, k)), 256, 0, stream, format, packed, k, seed);
}

}  // namespace flotilla::backend::cuda
