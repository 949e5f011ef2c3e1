#include "flotilla/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "flotilla/backend/broken_backend.h"
#include "flotilla/backend/cpu/cpu_matrix.h"
#include "flotilla/backend/cpu/math.h"

namespace flotilla::backend {
namespace {

constexpr std::size_t kMaxIdleBytes = std::size_t{128} << 20;
// Smaller pieces of element-wise work cost more to hand out than to do.
constexpr std::size_t kGrain = 16384;

std::size_t size(std::int64_t v) { return static_cast<std::size_t>(v); }

const WeightView& view_of(const Matrix* matrix) {
  return static_cast<const CpuMatrix*>(matrix)->view();
}

}  // namespace

CpuBackend::CpuBackend(const CpuKernels& kernels, int num_threads, bool pack_weights,
                       bool pin_threads)
    : kernels_(kernels),
      pack_weights_(pack_weights),
      cache_(kMaxIdleBytes),
      pool_(num_threads, pin_threads) {
  scratch_storage_ =
      tensor::make_host_buffer(kScratchBytes * static_cast<std::size_t>(num_threads));
  for (int t = 0; t < num_threads; ++t) {
    scratch_.push_back(scratch_storage_->data() + static_cast<std::size_t>(t) * kScratchBytes);
  }
}

Capabilities CpuBackend::capabilities() const {
  const int n = pool_.num_threads();
  return {.device = std::string("CPU ") + kernels_.name + ", " + std::to_string(n) +
                    (n == 1 ? " thread" : " threads"),
          .keeps_bit_contract = true,
          .num_threads = n};
}

Tensor CpuBackend::allocate(const Shape& shape, tensor::DType dtype) {
  const std::size_t bytes = size(shape.num_elements()) * tensor::dtype_bytes(dtype);
  return Tensor(cache_.get(bytes), 0, shape, dtype);
}

Result<std::unique_ptr<Matrix>> CpuBackend::prepare(const StoredMatrix& stored) {
  return CpuMatrix::make(stored, pack_weights_, kernels_, pool_);
}

template <class Body>
void CpuBackend::split(std::size_t count, std::size_t grain, Body&& body) {
  const std::size_t most = static_cast<std::size_t>(pool_.num_threads()) * 4;
  const std::size_t pieces =
      std::min(most, std::max<std::size_t>(1, count / std::max<std::size_t>(1, grain)));
  if (pieces <= 1 || pool_.num_threads() == 1) return body(std::size_t{0}, count);
  pool_.run(static_cast<int>(pieces), [&](int i, int) {
    const auto piece = static_cast<std::size_t>(i);
    body(count * piece / pieces, count * (piece + 1) / pieces);
  });
}

void CpuBackend::embedding(const EmbeddingArgs& args) {
  const WeightView& w = view_of(args.table);
  const std::size_t k = size(args.table->k());
  float* out = args.out.data<float>();
  split(args.ids.size(), std::max<std::size_t>(1, kGrain / 8 / k),
        [&](std::size_t begin, std::size_t end) {
          for (std::size_t t = begin; t < end; ++t)
            kernels_.embedding(w, args.ids[t], args.scale, out + t * k);
        });
}

void CpuBackend::rms_norm(const RmsNormArgs& args) {
  const std::size_t rows = size(args.x.dim(0)), dim = size(args.x.dim(1));
  const float* x = args.x.data<float>();
  const float* weight = args.weight.data<float>();
  float* out = args.out.data<float>();
  split(rows, kGrain / dim, [&](std::size_t begin, std::size_t end) {
    kernels_.rms_norm(x + begin * dim, weight, args.eps, out + begin * dim, end - begin, dim);
  });
}

void CpuBackend::norm_add(const NormAddArgs& args) {
  const std::size_t rows = size(args.x.dim(0)), dim = size(args.x.dim(1));
  const float* x = args.x.data<float>();
  float* residual = args.residual.data<float>();
  split(rows, kGrain / dim, [&](std::size_t begin, std::size_t end) {
    kernels_.norm_add(x + begin * dim, args.weight.data<float>(), args.eps, args.scale,
                      residual + begin * dim, end - begin, dim);
  });
}

void CpuBackend::gelu_mul(const GeluMulArgs& args) {
  const float* gate = args.gate.data<float>();
  const float* up = args.up.data<float>();
  float* out = args.out.data<float>();
  split(size(args.gate.shape().num_elements()), kGrain / 4,
        [&](std::size_t begin, std::size_t end) {
          kernels_.gelu_mul(gate + begin, up + begin, out + begin, end - begin);
        });
}

void CpuBackend::softcap(const SoftcapArgs& args) {
  float* x = args.x.data<float>();
  split(size(args.x.shape().num_elements()), kGrain / 4, [&](std::size_t begin, std::size_t end) {
    kernels_.softcap(x + begin, args.cap, end - begin);
  });
}

void CpuBackend::rope(const RopeArgs& args) {
  // Frequencies of zero at the end rotate nothing.
  std::size_t pairs = args.inverse_frequencies.size();
  while (pairs > 0 && args.inverse_frequencies[pairs - 1] == 0.0f) --pairs;
  const std::size_t tokens = args.positions.size();
  if (pairs == 0 || tokens == 0) return;
  const auto heads = static_cast<int>(args.x.dim(1)), head_dim = static_cast<int>(args.x.dim(2));
  const std::size_t stride = size(args.x.dim(1)) * size(args.x.dim(2));
  angles_.resize(tokens * pairs);
  sines_.resize(tokens * pairs);
  cosines_.resize(tokens * pairs);
  float* x = args.x.data<float>();
  split(tokens, std::max<std::size_t>(1, kGrain / 4 / stride),
        [&](std::size_t begin, std::size_t end) {
          for (std::size_t t = begin; t < end; ++t) {
            const auto position = static_cast<float>(args.positions[t]);
            for (std::size_t i = 0; i < pairs; ++i) {
              angles_[t * pairs + i] = position * args.inverse_frequencies[i];
            }
            const std::span<float> sines = std::span(sines_).subspan(t * pairs, pairs);
            const std::span<float> cosines = std::span(cosines_).subspan(t * pairs, pairs);
            sin_cos_array(std::span<const float>(angles_).subspan(t * pairs, pairs), sines,
                          cosines);
            kernels_.rope(x + t * stride, cosines.data(), sines.data(), static_cast<int>(pairs),
                          heads, head_dim);
          }
        });
}

// ---- linears
// ----------------------------------------------------------------------------------------------

void CpuBackend::linear(const LinearArgs& args) {
  const Matrix* weights[] = {args.weight};
  const Tensor outs[] = {args.out};
  linear_group({.weights = weights, .x = args.x, .outs = outs});
}

void CpuBackend::linear_group(const LinearGroupArgs& args) {
  const auto m = static_cast<int>(args.x.dim(0)), k = static_cast<int>(args.x.dim(1));
  if (m == 0) return;
  std::vector<Product> products;
  products.reserve(args.weights.size());
  // Weights of one group size and scaling share the packed x.
  for (const int group : {16, 32, 64, 128}) {
    for (const RowScaling scaling : {RowScaling::kNone, RowScaling::kByPlace}) {
      products.clear();
      for (std::size_t i = 0; i < args.weights.size(); ++i) {
        const WeightView& w = view_of(args.weights[i]);
        if (w.group == group && kernels_.scaling_for(w, m) == scaling) {
          products.push_back({&w, args.outs[i].data<float>()});
        }
      }
      if (products.empty()) continue;
      packed_rows_.pack(args.x.data<float>(), m, k, group, scaling, pool_);
      run_products(products, m);
    }
  }
  packed_rows_.shrink(kMaxIdleBytes);
}

void CpuBackend::run_products(std::span<const Product> products, int m) {
  // Small items keep the threads' finishing times close, but a thread should stream some pages of
  // memory at a stretch.
  constexpr std::size_t kItemBytes = 40000;
  const PackedRows& x = packed_rows_;
  const bool few_rows = m <= kMaxFusedRows;
  std::vector<int> first_item(products.size() + 1), tiles_per_item(products.size());
  for (std::size_t i = 0; i < products.size(); ++i) {
    const WeightView& w = *products[i].weight;
    const int tiles = num_tiles(w);
    const std::size_t tile_bytes = (w.row_bytes + 2 * w.scale_row_bytes) * kTileRows;
    const int per_item = !few_rows ? kItemTiles
                         : w.packed != nullptr
                             ? kBundleTiles
                             : std::clamp(static_cast<int>(kItemBytes / tile_bytes), 1, kItemTiles);
    tiles_per_item[i] = per_item;
    first_item[i + 1] = first_item[i] + (tiles + per_item - 1) / per_item;
  }
  const int panels_per_pass = kMaxPassRows / kPanelRows;
  for (int p = 0; p < x.num_panels(); p += panels_per_pass) {
    const int panel_end = std::min(x.num_panels(), p + panels_per_pass);
    pool_.run(first_item.back(), [&](int item, int thread) {
      const auto i = static_cast<std::size_t>(
          std::upper_bound(first_item.begin(), first_item.end(), item) - first_item.begin() - 1);
      const WeightView& w = *products[i].weight;
      const int tile = (item - first_item[i]) * tiles_per_item[i];
      const int tile_end = std::min(num_tiles(w), tile + tiles_per_item[i]);
      kernels_.linear(w, x, p, panel_end, tile, tile_end, products[i].out, scratch(thread));
    });
  }
}

// ---- attention
// --------------------------------------------------------------------------------------------

void CpuBackend::kv_append(const KvAppendArgs& args) {
  const std::size_t nk = static_cast<std::size_t>(args.geometry.num_kv_heads);
  const std::size_t head_dim = static_cast<std::size_t>(args.geometry.head_dim);
  const float* k = args.k.data<float>();
  const float* v = args.v.data<float>();
  for (const KvRow& row : args.rows) {
    split(static_cast<std::size_t>(row.num_tokens), kGrain / 8 / (nk * head_dim),
          [&](std::size_t begin, std::size_t end) {
            for (std::size_t t = begin; t < end; ++t) {
              const int position = row.first_position + static_cast<int>(t);
              float* page = row.kv.pages[position / tensor::kKvBlock - row.kv.first_block];
              const auto lane = static_cast<std::size_t>(position % tensor::kKvBlock);
              const std::size_t from =
                  (static_cast<std::size_t>(row.first_row) + t) * nk * head_dim;
              for (std::size_t h = 0; h < nk; ++h) {
                const float* key = k + from + h * head_dim;
                float* to = page + tensor::kv_k_offset(args.geometry, static_cast<int>(h)) + lane;
                for (std::size_t d = 0; d < head_dim; ++d) to[d * tensor::kKvBlock] = key[d];
                std::memcpy(page + tensor::kv_v_offset(args.geometry, static_cast<int>(h)) +
                                lane * head_dim,
                            v + from + h * head_dim, head_dim * sizeof(float));
              }
            }
          });
  }
}

void CpuBackend::attention(const AttentionArgs& args) {
  const auto num_heads = static_cast<int>(args.q.dim(1));
  const int nk = args.geometry.num_kv_heads, per_kv = num_heads / nk;
  const std::size_t stride =
      static_cast<std::size_t>(num_heads) * static_cast<std::size_t>(args.geometry.head_dim);
  // Query heads of one KV head share its pages, and so do neighbouring tokens; but every thread
  // needs work.
  std::int64_t pairs = 0;
  for (const KvRow& row : args.rows) pairs += std::int64_t{row.num_tokens} * nk;
  const int threads = pool_.num_threads();
  const auto items_with = [&](int heads) { return pairs * ((per_kv + heads - 1) / heads); };
  int heads_per_item = std::min(per_kv, kAttentionRows);
  while (heads_per_item > 1 && items_with(heads_per_item) < threads) {
    heads_per_item = (heads_per_item + 1) / 2;
  }
  // Later tokens see more keys, so there must be enough items to even that out.
  int tokens_per_item = std::max(1, kAttentionRows / heads_per_item);
  while (tokens_per_item > 1 && items_with(heads_per_item) / tokens_per_item < 2 * threads) {
    tokens_per_item /= 2;
  }

  items_.clear();
  for (const KvRow& row : args.rows) {
    for (int kv_head = 0; kv_head < nk; ++kv_head) {
      for (int h = 0; h < per_kv; h += heads_per_item) {
        for (int t = 0; t < row.num_tokens; t += tokens_per_item) {
          const std::size_t at = static_cast<std::size_t>(row.first_row + t) * stride;
          items_.push_back({.q = args.q.data<float>() + at,
                            .out = args.out.data<float>() + at,
                            .token_stride = stride,
                            .first_head = kv_head * per_kv + h,
                            .num_heads = std::min(heads_per_item, per_kv - h),
                            .num_tokens = std::min(tokens_per_item, row.num_tokens - t),
                            .first_position = row.first_position + t,
                            .head_dim = args.geometry.head_dim,
                            .window = args.window,
                            .scale = args.scale,
                            .k_offset = tensor::kv_k_offset(args.geometry, kv_head),
                            .v_offset = tensor::kv_v_offset(args.geometry, kv_head),
                            .kv = row.kv});
        }
      }
    }
  }
  pool_.run(static_cast<int>(items_.size()), [&](int i, int thread) {
    kernels_.attention(items_[static_cast<std::size_t>(i)], scratch(thread));
  });
}

// ---- factory
// ----------------------------------------------------------------------------------------------

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return Error{
        ErrorCode::kInvalidArgument,
        "number of threads " + std::to_string(options.num_threads) + " is not in [0, 1024]"};
  }
  const CpuKernels* kernels = find_cpu_kernels(options.target);
  if (kernels == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 std::string("this processor or build has no ") +
                     (options.target == CpuTarget::kAvx512 ? "AVX-512" : "AVX2 with FMA")};
  }
  const int threads = options.num_threads == 0 ? usable_cores() : options.num_threads;
  std::unique_ptr<Backend> backend =
      std::make_unique<CpuBackend>(*kernels, threads, options.pack_weights, options.pin_threads);
  if (options.test_split_k_rows > 0) {
    backend = make_broken_backend(std::move(backend), options.test_split_k_rows);
  }
  return backend;
}

}  // namespace flotilla::backend
