// The packed form of 4-bit affine matrices with groups of 64, and how their products are cut into
// pieces. Both are part of the bit-contract of the device type.
//
// The matrix is cut into blocks of 128 rows x 64 columns (one quantisation group along K). Block
// (rb, g) lies at ((rb * groups) + g) * kBlockBytes:
//
//   [0, 4096)     codes, [warp 0..7][lane 0..31][step 0..3] of 32-bit words. Word `step` of a lane
//                 holds its A fragment of mma.m16n8k16 number `step`: nibbles i and i + 4 are the
//                 low and high half of fragment register a_i for i < 3, nibbles 7 and 3 those of
//                 a_3, and the word is rotated left by 3, so that each pair reaches mantissa bits
//                 3..6 with at most one shift. For lane = 4 * g + t:
//                   a0 = row 2g,     k = 16 * step + 2t, + 1     a2 = row 2g,     k + 8, k + 9
//                   a1 = row 2g + 1, k = 16 * step + 2t, + 1     a3 = row 2g + 1, k + 8, k + 9
//                 (fragment rows g and g + 8 are matrix rows 2g and 2g + 1: a lane's two outputs
//                 are neighbours)
//   [4096, 4608)  [row 0..127] { scale * 2^130, bias } bf16
//
// wgmma with A in registers has the same fragments. Rows beyond n are zero.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flotilla::backend::cuda {

using bf16 = __nv_bfloat16;

constexpr int kRows = 128;
constexpr int kGroup = 64;
constexpr int kNibbleBytes = kRows * kGroup / 2;
constexpr int kBlockBytes = kNibbleBytes + kRows * 4;

// Units (rb, g) in memory order are dealt to `procs` processors as contiguous ranges of equal
// length (+-1). A row block that spans several ranges is the sum of several pieces, added in index
// order. Every kernel, for any number of tokens, sums the same pieces in the same order.
struct Partition {
  int units;   // row blocks * groups
  int groups;  // K / 64
  int procs;   // at most `units`, so that every processor has work

  __host__ __device__ int begin(int proc) const {
    return static_cast<int>(static_cast<long long>(proc < procs ? proc : procs) * units / procs);
  }
  __host__ __device__ int proc_of(int unit) const {
    return static_cast<int>((static_cast<long long>(unit + 1) * procs - 1) / units);
  }
  __host__ __device__ int first_proc(int rb) const { return proc_of(rb * groups); }
  __host__ __device__ int last_proc(int rb) const { return proc_of((rb + 1) * groups - 1); }
};

// The number of processors for `blocks` row blocks on a card that has `most`. Where hardly any
// would be idle, every row block is cut into equal pieces: fewer of them, and none that spans two
// blocks.
inline int partition_procs(int blocks, int groups, int most) {
  const int whole = blocks <= most ? most / blocks * blocks : 0;
  const int procs = whole * 20 >= most * 19 ? whole : most;
  return procs < blocks * groups ? procs : blocks * groups;
}

// Matrices that are multiplied with the same x lie behind each other in the partition.
constexpr int kMaxSegments = 3;
struct Segment {
  const std::uint8_t* w;  // packed
  void* y;                // [m][n]
  int n;                  // rows that exist; the rest of the last block is padding
  int first_block;        // row block of the group at which this matrix begins
  bool gated;             // rows alternate: gate, up; y [m][n / 2] = gelu_tanh(gate) * up, bf16
};
struct LinearParams {
  Segment segments[kMaxSegments];  // unused ones begin at INT_MAX
  bool y_is_f32;                   // the accumulators themselves; else rounded to bf16
  float* partials;  // procs slots of 128 x tokens floats, all kMissing between launches
  float* totals;    // finished pieces of the tile at hand, per thread block
  int m;            // tokens
  Partition part;
};

}  // namespace flotilla::backend::cuda
