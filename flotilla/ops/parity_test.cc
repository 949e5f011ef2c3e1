// One table of cases, run on every CPU target, layout and thread count, compared by memcmp with the
// definition (backend/cpu/definition.h); and each row alone against the same row among others.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "flotilla/backend/cpu/definition.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {
namespace {

using namespace flotilla::backend;  // NOLINT: a test of that module

struct Variant {
  CpuTarget target;
  int threads;
  bool pack;
};

// Calls f with every backend that this machine can run.
template <class Fn>
void on_every_backend(Fn&& f) {
  for (const Variant v :
       {Variant{CpuTarget::kScalar, 1, false}, Variant{CpuTarget::kScalar, 3, true},
        Variant{CpuTarget::kAvx2, 1, true}, Variant{CpuTarget::kAvx2, 2, false},
        Variant{CpuTarget::kAvx2, 3, true}, Variant{CpuTarget::kAvx512, 1, false},
        Variant{CpuTarget::kAvx512, 2, true}}) {
    auto made =
        make_cpu_backend({.num_threads = v.threads, .target = v.target, .pack_weights = v.pack});
    if (!made.ok()) continue;
    SCOPED_TRACE((*made)->capabilities().device + (v.pack ? ", packed" : ", as stored"));
    f(**made);
    if (::testing::Test::HasFailure()) return;
  }
}

std::span<const float> floats(const Tensor& t) {
  return {t.data<float>(), static_cast<std::size_t>(t.shape().num_elements())};
}
std::span<float> row(const Tensor& t, std::int64_t r) {
  const auto dim = static_cast<std::size_t>(t.shape().num_elements() / t.dim(0));
  return {t.data<float>() + static_cast<std::size_t>(r) * dim, dim};
}
Tensor copy(const Tensor& from) {
  Tensor to(tensor::make_host_buffer(from.num_bytes()), 0, from.shape(), from.dtype());
  std::memcpy(to.bytes(), from.bytes(), from.num_bytes());
  return to;
}
Tensor like(const Tensor& t) { return copy(t); }

void expect_same_bits(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  if (std::memcmp(got.bytes(), want.bytes(), want.num_bytes()) == 0) return;
  for (std::size_t i = 0; i < floats(want).size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats(got)[i]),
              std::bit_cast<std::uint32_t>(floats(want)[i]))
        << what << " at " << i << ": " << floats(got)[i] << " and " << floats(want)[i];
  }
}

// ---- linears and embeddings
// -------------------------------------------------------------------------------

struct LinearCase {
  std::int64_t n, k;
};

class LinearParity : public ::testing::TestWithParam<MatrixKind> {};

TEST_P(LinearParity, EqualsTheDefinitionAtEveryShapeAndRow) {
  std::uint64_t seed = 1;
  for (const LinearCase c : {LinearCase{1, 128}, LinearCase{33, 384}, LinearCase{16, 640},
                             LinearCase{90, 256}, LinearCase{75, 320}, LinearCase{7, 1152}}) {
    const bool dense = GetParam().group_size == 0;
    if (!dense && c.k % GetParam().group_size != 0) continue;
    const std::int64_t k = dense ? c.k - 5 : c.k;
    const StoredMatrix stored = fixed_matrix(GetParam(), c.n, k, seed++);
    const Tensor x = fixed_activations({9, k}, seed);
    const Tensor want = fixed_activations({9, c.n}, 0);
    for (std::int64_t r = 0; r < 9; ++r) define_linear(stored, row(x, r), row(want, r));
    const std::vector<TokenId> ids = {0, static_cast<TokenId>(c.n - 1),
                                      static_cast<TokenId>(c.n / 2)};
    const Tensor rows = fixed_activations({3, k}, 0);
    for (std::int64_t i = 0; i < 3; ++i) {
      define_embedding(stored, ids[static_cast<std::size_t>(i)], 1.7f, row(rows, i));
    }
    on_every_backend([&](Backend& backend) {
      const auto matrix = std::move(backend.prepare(stored)).value();
      for (std::int64_t m = 1; m <= 9; ++m) {
        expect_same_bits(linear(backend, *matrix, x.rows(0, m)), want.rows(0, m),
                         "m = " + std::to_string(m) + ", n = " + std::to_string(c.n));
        expect_same_bits(linear(backend, *matrix, x.rows(9 - m, 9)), want.rows(9 - m, 9),
                         "last rows");
      }
      expect_same_bits(embedding(backend, *matrix, ids, 1.7f), rows, "embedding");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearParity, ::testing::ValuesIn(all_matrix_kinds()),
                         [](const auto& test) { return matrix_kind_name(test.param); });

TEST(Linear, ARowIsTheSameAloneAndAmongManyOthers) {
  for (const MatrixKind kind :
       {MatrixKind{WeightFormat::kAffine, 4, 64}, MatrixKind{WeightFormat::kBF16},
        MatrixKind{WeightFormat::kAffine, 6, 128}, MatrixKind{WeightFormat::kNvfp4, 4, 16}}) {
    const StoredMatrix stored = fixed_matrix(kind, 100, 768, 3);
    const Tensor x = fixed_activations({300, 768}, 4);
    std::vector<Tensor> alone;
    on_every_backend([&](Backend& backend) {
      if (backend.capabilities().device.find("portable") != std::string::npos) return;  // slow
      const auto matrix = std::move(backend.prepare(stored)).value();
      for (std::int64_t r = 0; alone.size() < 300; ++r) {
        alone.push_back(copy(linear(backend, *matrix, x.rows(r, r + 1))));
      }
      for (const std::int64_t m : {2, 5, 7, 12, 16, 64, 239, 240, 241, 300}) {
        for (const std::int64_t first : {std::int64_t{0}, std::min<std::int64_t>(3, 300 - m)}) {
          const Tensor many = linear(backend, *matrix, x.rows(first, first + m));
          for (std::int64_t r = 0; r < m; ++r) {
            expect_same_bits(
                many.rows(r, r + 1), alone[static_cast<std::size_t>(first + r)],
                matrix_kind_name(kind) + " row " + std::to_string(r) + " of " + std::to_string(m));
          }
        }
      }
    });
  }
}

// Rows that a kernel which scales x, or expects ordinary values, would get wrong. The first
// kNumPlaceable can be scaled.
constexpr std::int64_t kNumPlaceable = 5;
std::vector<std::vector<float>> extreme_rows() {
  const float denormal = std::numeric_limits<float>::denorm_min();
  const float largest_denormal = std::nextafter(0x1p-126f, 0.0f), max = 0x1.fffffep+127f;
  const float inf = std::numeric_limits<float>::infinity();
  return {{denormal, -denormal, 3 * denormal, largest_denormal, 0.0f, -0.0f},
          {0x1p-126f, -0x1.000002p-126f, 0x1p-115f, 0x1.fffffep-114f, 0x1p-100f},
          {0.0f},
          {-0.0f},
          {0x1p-149f, 1.0f, 0x1p60f, -0x1.fffffep114f, 0x1.fffffep113f},
          {0x1p115f, -1.0f, 0.25f, 0x1p-149f},  // from here on too large to be scaled
          {0x1p118f, -0x1.800002p117f, 1e-30f},
          {max, 1.0f, -2.0f},
          {inf, 1.0f, 2.0f},
          {-inf, inf, 1.0f},
          {std::numeric_limits<float>::quiet_NaN(), 1.0f, 0x1p-140f}};
}

// Which NaN comes out is not promised.
void expect_same_bits_or_nan(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  for (std::size_t i = 0; i < floats(want).size(); ++i) {
    const float g = floats(got)[i], w = floats(want)[i];
    if (std::isnan(w) && std::isnan(g)) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(g), std::bit_cast<std::uint32_t>(w))
        << what << " at " << i << ": " << g << " and " << w;
  }
}

TEST(Linear, DenormalsHugeValuesInfinitiesAndNanEqualTheDefinition) {
  constexpr std::int64_t kK = 384, kN = 35;
  const auto kinds = extreme_rows();
  const auto count = static_cast<std::int64_t>(kinds.size());
  // Many rows without one that is too large to be scaled come last.
  constexpr std::int64_t kMany = 40;
  const std::int64_t num_rows = 2 * count + kMany;
  const auto kind_of = [&](std::int64_t r) {
    return static_cast<std::size_t>(r < 2 * count ? r / 2 : (r - 2 * count) % kNumPlaceable);
  };
  for (const MatrixKind kind : {MatrixKind{WeightFormat::kAffine, 4, 64},
                                MatrixKind{WeightFormat::kAffine, 4, 64, tensor::DType::kF16},
                                MatrixKind{WeightFormat::kAffine, 4, 32}}) {
    const StoredMatrix stored = fixed_matrix(kind, kN, kK, 11);
    // Every value at every place of a word; ordinary values between the extreme ones in odd rows.
    const Tensor x = fixed_activations({num_rows, kK}, 12);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      const std::vector<float>& values = kinds[kind_of(r)];
      for (std::size_t k = 0; k < kK; ++k) {
        if (r % 2 == 0 || k % 5 == 3) row(x, r)[k] = values[k / 5 % values.size()];
      }
    }
    const Tensor want = fixed_activations({num_rows, kN}, 0);
    for (std::int64_t r = 0; r < num_rows; ++r) define_linear(stored, row(x, r), row(want, r));
    on_every_backend([&](Backend& backend) {
      const auto matrix = std::move(backend.prepare(stored)).value();
      const auto check = [&](std::int64_t first, std::int64_t m) {
        expect_same_bits_or_nan(linear(backend, *matrix, x.rows(first, first + m)),
                                want.rows(first, first + m),
                                matrix_kind_name(kind) + ", " + std::to_string(m) + " rows from " +
                                    std::to_string(first));
      };
      for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 10, 11, 22}) {
        for (std::int64_t first = 0; first + m <= 2 * count; first += m) check(first, m);
      }
      check(2 * count, kMany);
      check(0, num_rows);
    });
  }
}

TEST(Linear, AGroupOfWeightsGivesWhatEachGivesAlone) {
  std::vector<StoredMatrix> stored;
  for (const MatrixKind& kind : all_matrix_kinds())
    stored.push_back(fixed_matrix(kind, 24, 384, stored.size() + 1));
  const Tensor x = fixed_activations({13, 384}, 2);
  on_every_backend([&](Backend& backend) {
    std::vector<std::unique_ptr<Matrix>> matrices;
    std::vector<const Matrix*> pointers;
    for (const StoredMatrix& m : stored) {
      matrices.push_back(std::move(backend.prepare(m)).value());
      pointers.push_back(matrices.back().get());
    }
    for (const std::int64_t m : {1, 4, 13}) {
      const std::vector<Tensor> outs = linear_group(backend, pointers, x.rows(0, m));
      for (std::size_t i = 0; i < outs.size(); ++i) {
        expect_same_bits(outs[i], linear(backend, *pointers[i], x.rows(0, m)),
                         "weight " + std::to_string(i));
      }
    }
    EXPECT_EQ(linear(backend, *pointers[0], x.rows(0, 0)).dim(0), 0);
  });
}

// ---- element-wise
// -----------------------------------------------------------------------------------------

TEST(Elementwise, NormsEqualTheDefinition) {
  for (const std::int64_t dim : {1, 15, 16, 17, 64, 100, 2560, 5376}) {
    const Tensor x = fixed_activations({5, dim}, 1), residual = fixed_activations({5, dim}, 2);
    const Tensor weight = fixed_activations({dim}, 3);
    const Tensor normed = like(x), plain = like(x), added = copy(residual);
    for (std::int64_t r = 0; r < 5; ++r) {
      define_rms_norm(row(x, r), floats(weight), 1e-6f, row(normed, r));
      define_rms_norm(row(x, r), {}, 1e-5f, row(plain, r));
      define_norm_add(row(x, r), floats(weight), 1e-6f, 0.37f, row(added, r));
    }
    on_every_backend([&](Backend& backend) {
      expect_same_bits(rms_norm(backend, x, weight, 1e-6f), normed, "rms_norm");
      expect_same_bits(rms_norm(backend, x, {}, 1e-5f), plain, "rms_norm without weight");
      const Tensor in_place = copy(x);
      rms_norm_in_place(backend, in_place, weight, 1e-6f);
      expect_same_bits(in_place, normed, "rms_norm in place");
      const Tensor r = copy(residual);
      norm_add(backend, x, weight, 1e-6f, 0.37f, r);
      expect_same_bits(r, added, "norm_add");
    });
  }
}

TEST(Elementwise, ActivationsEqualTheDefinitionAtEverySize) {
  for (const Shape shape : {Shape{1, 1}, Shape{3, 31}, Shape{7, 4099}, Shape{40, 2112}}) {
    const Tensor gate = fixed_activations(shape, 1), up = fixed_activations(shape, 2);
    const Tensor product = like(gate), capped = like(gate);
    for (std::size_t i = 0; i < floats(gate).size(); ++i) {
      product.data<float>()[i] = define_gelu_mul(floats(gate)[i], floats(up)[i]);
      capped.data<float>()[i] = define_softcap(floats(gate)[i], 2.5f);
    }
    on_every_backend([&](Backend& backend) {
      expect_same_bits(gelu_mul(backend, copy(gate), up), product, "gelu_mul");
      const Tensor x = copy(gate);
      softcap(backend, x, 2.5f);
      expect_same_bits(x, capped, "softcap");
    });
  }
}

TEST(Elementwise, RopeEqualsTheDefinitionAndLeavesUnrotatedPairsAlone) {
  for (const std::int64_t head_dim : {8, 64, 256, 512}) {
    const auto pairs = static_cast<std::size_t>(head_dim / 2);
    std::vector<float> frequencies(pairs, 0.0f);
    float f = 1.0f;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, pairs / 4); ++i, f *= 0.8f)
      frequencies[i] = f;
    const std::vector<std::int32_t> positions = {0, 5, 1023, 131072, 262143, 1, 2};
    const Tensor x = fixed_activations({7, 3, head_dim}, 1), want = copy(x);
    for (std::int64_t t = 0; t < 7; ++t) {
      for (std::size_t h = 0; h < 3; ++h) {
        define_rope(row(want, t).subspan(h * 2 * pairs, 2 * pairs),
                    positions[static_cast<std::size_t>(t)], frequencies);
      }
    }
    EXPECT_EQ(floats(want)[2 * pairs - 1], floats(x)[2 * pairs - 1]);
    on_every_backend([&](Backend& backend) {
      const Tensor y = copy(x);
      rope(backend, y, positions, frequencies);
      expect_same_bits(y, want, "rope");
    });
  }
}

// ---- attention
// --------------------------------------------------------------------------------------------

struct AttentionCase {
  const char* name;
  int num_heads, num_kv_heads, head_dim, window;
  std::vector<std::pair<int, int>> rows;  // first position, tokens
};

class AttentionParity : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionParity, EqualsTheDefinition) {
  const AttentionCase& c = GetParam();
  const KvGeometry geometry{.num_kv_heads = c.num_kv_heads, .head_dim = c.head_dim};
  std::int64_t tokens = 0;
  for (const auto& [first, count] : c.rows) tokens += count;
  const Tensor q = fixed_activations({tokens, c.num_heads, c.head_dim}, 1);
  const Tensor k = fixed_activations({tokens, c.num_kv_heads, c.head_dim}, 2);
  const Tensor v = fixed_activations({tokens, c.num_kv_heads, c.head_dim}, 3);
  const float scale = 0.11f;
  Tensor want;
  on_every_backend([&](Backend& backend) {
    std::vector<FixedKv> storage;
    storage.reserve(c.rows.size());
    std::vector<KvRow> rows;
    int first_row = 0;
    for (const auto& [first, count] : c.rows) {
      const int lowest = c.window > 0 ? std::max(0, first - c.window + 1) / 32 : 0;
      storage.emplace_back(geometry, lowest, (first + count - 1) / 32 - lowest + 1,
                           77 + storage.size());
      rows.push_back({first_row, count, first, storage.back().view()});
      first_row += count;
    }
    kv_append(backend, k, v, geometry, rows);
    if (want.empty()) {
      want = like(q);
      for (const KvRow& r : rows) {
        for (int t = 0; t < r.num_tokens; ++t) {
          for (int h = 0; h < c.num_heads; ++h) {
            const auto at = static_cast<std::size_t>(h * c.head_dim),
                       dim = static_cast<std::size_t>(c.head_dim);
            define_attention(row(q, r.first_row + t).subspan(at, dim), geometry,
                             h / (c.num_heads / c.num_kv_heads), r.kv, r.first_position + t,
                             c.window, scale, row(want, r.first_row + t).subspan(at, dim));
          }
        }
      }
    }
    expect_same_bits(attention(backend, q, geometry, rows, c.window, scale), want, "all rows");
    // Every token alone, which cuts the work into other items.
    for (const KvRow& r : rows) {
      for (int t = 0; t < r.num_tokens; ++t) {
        const KvRow one{0, 1, r.first_position + t, r.kv};
        const std::int64_t at = r.first_row + t;
        expect_same_bits(
            attention(backend, q.rows(at, at + 1), geometry, {&one, 1}, c.window, scale),
            want.rows(at, at + 1), "token " + std::to_string(at));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionParity,
    ::testing::Values(
        AttentionCase{"first_token", 2, 1, 64, 0, {{0, 1}}},
        AttentionCase{"one_block", 4, 2, 32, 0, {{0, 20}}},
        AttentionCase{"block_edges", 2, 2, 16, 0, {{31, 2}, {63, 1}, {32, 1}, {95, 40}}},
        AttentionCase{"narrow_head", 3, 1, 8, 0, {{40, 7}}},
        AttentionCase{"odd_strip", 6, 2, 88, 0, {{100, 9}}},
        AttentionCase{"wide_head", 8, 1, 512, 0, {{70, 3}}},
        AttentionCase{"many_heads", 40, 2, 24, 0, {{33, 5}}},
        AttentionCase{"window_inside_block", 2, 1, 32, 5, {{0, 50}, {200, 3}}},
        AttentionCase{"window_of_one", 2, 1, 32, 1, {{0, 3}, {64, 2}}},
        AttentionCase{"window_on_edges", 4, 2, 64, 64, {{63, 3}, {126, 5}, {1000, 1}}},
        AttentionCase{"window_long", 4, 4, 40, 100, {{0, 170}}},
        AttentionCase{"decode_batch", 4, 1, 64, 0, {{5, 1}, {64, 1}, {300, 1}, {31, 1}}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Attention, ReadsNothingOfHiddenKeys) {
  // Pages come from a pool and hold anything beyond the sequence, NaN included.
  const KvGeometry geometry{.num_kv_heads = 1, .head_dim = 32};
  const Tensor q = fixed_activations({2, 2, 32}, 1);
  for (const int window : {0, 6}) {
    on_every_backend([&](Backend& backend) {
      Tensor results[2];
      for (int poisoned = 0; poisoned < 2; ++poisoned) {
        const FixedKv kv(geometry, 0, 2, 5);
        const KvRow r{0, 2, 39, kv.view()};
        for (int position = 0; position < 64 && poisoned == 1; ++position) {
          const bool hidden = position > 40 || (window > 0 && position < 39 - window + 1);
          float* page = kv.view().pages[position / 32];
          const auto lane = static_cast<std::size_t>(position % 32);
          for (std::size_t d = 0; d < 32 && hidden; ++d) {
            page[d * 32 + lane] = std::nanf("");
            page[tensor::kv_v_offset(geometry, 0) + lane * 32 + d] = std::nanf("");
          }
        }
        results[poisoned] = attention(backend, q, geometry, {&r, 1}, window, 0.3f);
      }
      expect_same_bits(results[1], results[0], "window " + std::to_string(window));
    });
  }
}

TEST(KvAppend, WritesOnlyTheStepsOwnPositions) {
  const KvGeometry geometry{.num_kv_heads = 2, .head_dim = 24};
  const Tensor k = fixed_activations({40, 2, 24}, 1), v = fixed_activations({40, 2, 24}, 2);
  on_every_backend([&](Backend& backend) {
    const FixedKv kv(geometry, 3, 3, 5), before(geometry, 3, 3, 5);
    const KvRow r{0, 40, 120, kv.view()};
    kv_append(backend, k, v, geometry, {&r, 1});
    for (int position = 96; position < 192; ++position) {
      const std::size_t page = static_cast<std::size_t>(position / 32 - 3),
                        lane = static_cast<std::size_t>(position % 32);
      for (int h = 0; h < 2; ++h) {
        for (std::size_t d = 0; d < 24; ++d) {
          const std::size_t k_at = tensor::kv_k_offset(geometry, h) + d * 32 + lane;
          const std::size_t v_at = tensor::kv_v_offset(geometry, h) + lane * 24 + d;
          const bool written = position >= 120 && position < 160;
          const std::size_t from = (static_cast<std::size_t>(written ? position - 120 : 0) * 2 +
                                    static_cast<std::size_t>(h)) *
                                       24 +
                                   d;
          ASSERT_EQ(kv.view().pages[page][k_at],
                    written ? floats(k)[from] : before.view().pages[page][k_at]);
          ASSERT_EQ(kv.view().pages[page][v_at],
                    written ? floats(v)[from] : before.view().pages[page][v_at]);
        }
      }
    }
  });
}

}  // namespace
}  // namespace flotilla::ops
