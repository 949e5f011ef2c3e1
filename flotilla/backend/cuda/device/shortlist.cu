// The first candidates of rows of logits. Every part of a row gives its own first ones, then one
// block per row takes the first of those. A candidate is a 64-bit key: no two are equal, so the
// result depends on nothing but the row.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/ptx.cuh"

namespace flotilla::backend::cuda {
namespace {

using Key = unsigned long long;  // 0: no candidate
constexpr int kThreads = 512;
constexpr int kPerThread = kShortlistPart / kThreads;

// A logit that is no candidate. Arithmetic never gives this pattern.
constexpr std::uint32_t kTakenOut = 0xffffdeadu;

__device__ Key key_of(float value, std::int32_t id) {
  const std::uint32_t bits = value == 0.0f ? 0u : __float_as_uint(value);
  const std::uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(order) << 32 | static_cast<std::uint32_t>(~id);
}
__device__ ShortlistEntry entry_of(Key key) {
  const auto order = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t bits = (order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order;
  return {__uint_as_float(bits), static_cast<std::int32_t>(~static_cast<std::uint32_t>(key))};
}

struct SelectShared {
  int histogram[256];
  int bin, above, inside, taken;
};

// The least key of the first `count`, or 1 when there are no more. `each(f)` calls f with every key
// of the calling thread. For the whole block.
template <class Each>
__device__ Key threshold_of(Each&& each, int count, SelectShared& shared) {
  Key prefix = 0, mask = 0;
  int left = count;
  for (int shift = 56; shift >= 0; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) shared.histogram[threadIdx.x] = 0;
    __syncthreads();
    each([&](Key key) {
      if (key != 0 && (key & mask) == prefix)
        atomicAdd(&shared.histogram[static_cast<int>(key >> shift) & 255], 1);
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      // Lane l has the digits from 255 - 8 l downwards.
      int own = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) own += shared.histogram[255 - 8 * threadIdx.x - i];
      int through = own;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, through, d);
        if (static_cast<int>(threadIdx.x) >= d) through += other;
      }
      if (threadIdx.x == 31 && through < left) shared.bin = -1;
      if (through >= left && through - own < left) {
        int above = through - own, bin = 255 - 8 * static_cast<int>(threadIdx.x);
        while (above + shared.histogram[bin] < left) above += shared.histogram[bin--];
        shared.bin = bin, shared.above = above, shared.inside = shared.histogram[bin];
      }
    }
    __syncthreads();
    if (shared.bin < 0) return 1;  // in the first round only: fewer keys than wanted
    left -= shared.above;
    prefix |= static_cast<Key>(shared.bin) << shift;
    mask |= static_cast<Key>(255) << shift;
    if (shared.inside == left) break;
  }
  return prefix > 0 ? prefix : 1;
}

// Writes the first `count` keys to `out` in any order; their number.
template <class Each>
__device__ int select(Each&& each, int count, SelectShared& shared, Key* out) {
  // What is below the count-th of the threads' largest keys is not among the first: few keys pass,
  // and they are counted in different bins.
  Key largest = 0;
  each([&](Key key) { largest = key > largest ? key : largest; });
  const Key bound = threshold_of([&](auto&& f) { f(largest); }, count, shared);
  const Key least = threshold_of(
      [&](auto&& f) { each([&](Key key) { f(key >= bound ? key : 0); }); }, count, shared);
  __syncthreads();
  if (threadIdx.x == 0) shared.taken = 0;
  __syncthreads();
  each([&](Key key) {
    if (key >= bound && key >= least) out[atomicAdd(&shared.taken, 1)] = key;
  });
  __syncthreads();
  return shared.taken;
}

__global__ void change_kernel(const __grid_constant__ ShortlistParams p) {
  grid_launch_dependents();
  grid_wait();
  const ShortlistSource source = p.sources[blockIdx.x];
  float* row = p.x + static_cast<std::size_t>(source.row) * p.dim;
  for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < source.num_changes;
       i += gridDim.y * blockDim.x) {
    const LogitChange change = source.changes[i];
    float value = row[change.id];
    if (!isfinite(value)) continue;
    value = __fadd_rn(value, change.bias);
    value = value > 0 ? __fdiv_rn(value, change.repetition) : __fmul_rn(value, change.repetition);
    value = __fsub_rn(value, change.penalty);
    row[change.id] = change.taken_out != 0 ? __uint_as_float(kTakenOut) : value;
  }
}

__global__ __launch_bounds__(kThreads) void part_kernel(const __grid_constant__ ShortlistParams p) {
  __shared__ SelectShared shared;
  grid_launch_dependents();
  grid_wait();
  const ShortlistSource source = p.sources[blockIdx.y];
  const float* row = p.x + static_cast<std::size_t>(source.row) * p.dim;
  const int first = blockIdx.x * kShortlistPart + threadIdx.x;
  Key keys[kPerThread];
  bool wrong = false;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int id = first + j * kThreads;
    keys[j] = 0;
    if (id >= p.dim) continue;
    const float value = row[id];
    if (__float_as_uint(value) == kTakenOut) continue;
    wrong = wrong || !isfinite(value);
    bool allowed = true;
    if (source.allowed != nullptr) {
      const int word = id / 32;
      allowed = word < source.allowed_words && (source.allowed[word] >> (id % 32) & 1u) != 0;
    }
    if (allowed) keys[j] = key_of(value, id);
  }
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (__syncthreads_or(wrong ? 1 : 0) != 0) {
    if (threadIdx.x == 0) p.counts[at] = -1;
    return;
  }
  const int taken = select(
      [&](auto&& f) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) f(keys[j]);
      },
      source.count, shared, p.keys + at * p.max_count);
  if (threadIdx.x == 0) p.counts[at] = taken;
}

__global__ __launch_bounds__(kThreads) void first_kernel(const __grid_constant__ ShortlistParams p,
                                                         int parts) {
  __shared__ SelectShared shared;
  __shared__ Key sorted[kMostShortlistCount];
  grid_launch_dependents();
  grid_wait();
  const ShortlistSource source = p.sources[blockIdx.x];
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * parts;
  ShortlistEntry* out = p.out + static_cast<std::size_t>(blockIdx.x) * (1 + p.max_count);
  bool wrong = false;
  for (int i = threadIdx.x; i < parts; i += kThreads) wrong = wrong || p.counts[first + i] < 0;
  if (__syncthreads_or(wrong ? 1 : 0) != 0) {
    if (threadIdx.x == 0) out[0] = {0.0f, -1};
    return;
  }
  const int taken = select(
      [&](auto&& f) {
        for (int i = threadIdx.x; i < parts * source.count; i += kThreads) {
          const int part = i / source.count, place = i % source.count;
          const std::size_t at = first + part;
          f(place < p.counts[at] ? p.keys[at * p.max_count + place] : 0);
        }
      },
      source.count, shared, sorted);
  // Bitonic, descending.
  int size = 1;
  while (size < taken) size *= 2;
  for (int i = taken + threadIdx.x; i < size; i += kThreads) sorted[i] = 0;
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      const int i = threadIdx.x, other = i ^ step;
      if (i >= size || other < i) continue;
      const Key a = sorted[i], b = sorted[other];
      if ((a < b) == ((i & width) == 0)) sorted[i] = b, sorted[other] = a;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) out[0] = {0.0f, taken};
  for (int i = threadIdx.x; i < taken; i += kThreads) out[1 + i] = entry_of(sorted[i]);
}

}  // namespace

cudaError_t shortlist(const ShortlistParams& p, cudaStream_t stream) {
  static_assert(kMostShortlistCount <= kThreads);  // a bound from the threads' largest keys
  if (p.max_count < 1 || p.max_count > kMostShortlistCount) return cudaErrorInvalidValue;
  const auto rows = static_cast<unsigned>(p.num_rows);
  if (p.num_changes > 0) {
    const cudaError_t changed = launch(change_kernel, dim3(rows, 4), 256, 0, stream, p);
    if (changed != cudaSuccess) return changed;
  }
  const cudaError_t parts =
      launch(part_kernel, dim3(static_cast<unsigned>(p.parts()), rows), kThreads, 0, stream, p);
  if (parts != cudaSuccess) return parts;
  return launch(first_kernel, dim3(rows), kThreads, 0, stream, p, p.parts());
}

}  // namespace flotilla::backend::cuda
