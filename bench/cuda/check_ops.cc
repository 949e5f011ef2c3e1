// Every operation against the definition. Inputs are rounded to bf16 first, so the differences are
// those of the card's own roundings: one rounding of the result to bf16 (2^-9 relative, 1.7e-3 in
// the norm), for packed products one more of each weight, for attention one more of each
// probability. Limits are about twice what those give.
#include <algorithm>
#include <array>
#include <random>

#include "check_util.h"
#include "checks.h"
#include "device_kv.h"
#include "flotilla/backend/cpu/definition.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::cuda_check {
namespace {

using namespace flotilla::backend;  // NOLINT: checks of that module

constexpr double kRounded = 3e-3, kProduct = 5e-3, kExact = 2e-5;

Tensor activations(const Shape& shape, std::uint64_t seed) {
  Tensor t = fixed_activations(shape, seed);
  round_to_bf16(t);
  return t;
}

void check_linears(Backend& backend, Report& report) {
  std::uint64_t seed = 1;
  for (const MatrixKind& kind : all_matrix_kinds()) {
    double worst = 0, worst_row = 0;
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{33, 384}, {256, 640}, {128, 128}, {300, 1152}}) {
      const StoredMatrix stored = fixed_matrix(kind, n, k, seed++);
      auto matrix = backend.prepare(stored);
      if (!matrix.ok()) {
        report.expect(matrix_kind_name(kind) + ": " + matrix.error().message, false);
        continue;
      }
      const Tensor x = activations({5, k}, seed);
      const Tensor want = host_tensor({5, n}, DType::kF32);
      for (std::int64_t r = 0; r < 5; ++r) define_linear(stored, row(x, r), row(want, r));
      const Tensor got = back(backend, ops::linear(backend, **matrix, on_card(backend, x)));
      worst = std::max(worst, relative_error(floats(got), floats(want)));
      const std::vector<TokenId> ids = {0, static_cast<TokenId>(n - 1), 17};
      const Tensor rows = host_tensor({3, k}, DType::kF32);
      for (std::int64_t i = 0; i < 3; ++i)
        define_embedding(stored, ids[static_cast<std::size_t>(i)], 1.7f, row(rows, i));
      const Tensor looked_up = back(backend, ops::embedding(backend, **matrix, ids, 1.7f));
      worst_row = std::max(worst_row, relative_error(floats(looked_up), floats(rows)));
    }
    report.error("linear " + matrix_kind_name(kind), worst, kProduct);
    report.error("embedding " + matrix_kind_name(kind), worst_row, kExact);
  }
  // Scales that the fast kernels cannot take.
  StoredMatrix large = fixed_matrix({WeightFormat::kAffine, 4, 64, DType::kBF16}, 128, 128, 9);
  for (std::size_t i = 0; i < 256; ++i) {
    large.scales.data<std::uint16_t>()[i] = tensor::f32_to_bf16(i % 2 == 0 ? 0.75f : -3.0f);
  }
  auto matrix = backend.prepare(large);
  const Tensor x = activations({3, 128}, 4);
  const Tensor want = host_tensor({3, 128}, DType::kF32);
  for (std::int64_t r = 0; r < 3; ++r) define_linear(large, row(x, r), row(want, r));
  report.error(
      "linear affine4 with scales beyond 1/4",
      relative_error(floats(back(backend, ops::linear(backend, **matrix, on_card(backend, x)))),
                     floats(want)),
      kProduct);
}

void check_elementwise(Backend& backend, Report& report) {
  for (const std::int64_t dim : {64, 256, 2560, 5376}) {
    const std::string size = " of " + std::to_string(dim);
    const Tensor x = activations({5, dim}, 1), residual = fixed_activations({5, dim}, 2);
    const Tensor weight = fixed_activations({dim}, 3), next = fixed_activations({dim}, 4);
    const Tensor want = host_tensor({5, dim}, DType::kF32);
    const Tensor sum = host_tensor({5, dim}, DType::kF32);
    const Tensor normed = host_tensor({5, dim}, DType::kF32);
    for (std::int64_t r = 0; r < 5; ++r) {
      define_rms_norm(row(x, r), floats(weight), 1e-6f, row(want, r));
      std::copy_n(row(residual, r).data(), dim, row(sum, r).data());
      define_norm_add(row(x, r), floats(weight), 1e-6f, 0.37f, row(sum, r));
      define_rms_norm(row(sum, r), floats(next), 1e-6f, row(normed, r));
    }
    const Tensor w = backend.upload(weight), w2 = backend.upload(next);
    const Tensor xc = on_card(backend, x);
    report.error(
        "rms_norm" + size,
        relative_error(floats(back(backend, ops::rms_norm(backend, xc, w, 1e-6f))), floats(want)),
        kRounded);
    const Tensor rc = backend.upload(residual);
    ops::norm_add(backend, xc, w, 1e-6f, 0.37f, rc);
    report.error("norm_add" + size, relative_error(floats(back(backend, rc)), floats(sum)), kExact);
    const Tensor rc2 = backend.upload(residual);
    const Tensor out = ops::norm_add_norm(backend, xc, w, 1e-6f, 0.37f, rc2, w2);
    report.error("norm_add_norm" + size, relative_error(floats(back(backend, out)), floats(normed)),
                 kRounded);
    report.expect("norm_add_norm stores what norm_add does",
                  same_bytes(backend.to_host(rc), backend.to_host(rc2)));
    const Tensor separate = ops::rms_norm(backend, rc, w2, 1e-6f);
    report.expect("norm_add_norm equals its two parts",
                  same_bytes(backend.to_host(separate), backend.to_host(out)));
  }
  const Tensor gate = activations({7, 4096}, 1), up = activations({7, 4096}, 2);
  const Tensor product = host_tensor({7, 4096}, DType::kF32);
  const Tensor capped = host_tensor({7, 4096}, DType::kF32);
  for (std::size_t i = 0; i < floats(gate).size(); ++i) {
    floats(product)[i] = define_gelu_mul(floats(gate)[i], floats(up)[i]);
    floats(capped)[i] = define_softcap(floats(gate)[i], 2.5f);
  }
  report.error("gelu_mul",
               relative_error(floats(back(backend, ops::gelu_mul(backend, on_card(backend, gate),
                                                                 on_card(backend, up)))),
                              floats(product)),
               kRounded);
  const Tensor logits = backend.upload(gate);
  ops::softcap(backend, logits, 2.5f);
  report.error("softcap", relative_error(floats(back(backend, logits)), floats(capped)), kExact);

  const Tensor ties = fixed_activations({3, 262144}, 5);
  row(ties, 1)[77777] = row(ties, 1)[200000] = 1e6f;
  row(ties, 2)[262143] = 1e6f;
  const Tensor chosen = backend.allocate({3}, DType::kI32);
  backend.argmax({.x = backend.upload(ties), .out = chosen});
  const Tensor ids = backend.to_host(chosen);
  const auto first = std::max_element(row(ties, 0).begin(), row(ties, 0).end());
  report.expect("argmax finds the largest, the lowest id first",
                ids.data<std::int32_t>()[0] == first - row(ties, 0).begin() &&
                    ids.data<std::int32_t>()[1] == 77777 && ids.data<std::int32_t>()[2] == 262143);

  for (const std::int64_t dim : {32, 64, 256, 512}) {
    std::vector<float> frequencies(static_cast<std::size_t>(dim / 2), 0.0f);
    float f = 1.0f;
    for (std::int64_t i = 0; i < dim / 8; ++i, f *= 0.8f)
      frequencies[static_cast<std::size_t>(i)] = f;
    const std::vector<std::int32_t> positions = {0, 5, 1023, 131072, 262143};
    const Tensor x = activations({5, 3, dim}, 1);
    const Tensor card = on_card(backend, x);
    ops::rope(backend, card, positions, frequencies);
    for (std::int64_t t = 0; t < 5; ++t) {
      for (std::int64_t h = 0; h < 3; ++h) {
        define_rope(
            row(x, t).subspan(static_cast<std::size_t>(h * dim), static_cast<std::size_t>(dim)),
            positions[static_cast<std::size_t>(t)], frequencies);
      }
    }
    report.error("rope of " + std::to_string(dim),
                 relative_error(floats(back(backend, card)), floats(x)), kRounded);
  }
}

// Logits of three kinds: all different, many ties, and nearly all equal.
void check_shortlists(Backend& backend, Report& report) {
  std::mt19937 random(5);
  for (const std::int64_t dim : {61, 4096, 8193, 262144, 300001}) {
    const Tensor logits = fixed_activations({9, dim}, static_cast<std::uint64_t>(dim));
    for (float& v : row(logits, 1)) v = std::round(v * 4);
    for (float& v : row(logits, 2)) v = v > 2.5f ? 1.0f : -0.0f;
    row(logits, 7)[static_cast<std::size_t>(dim - 1)] = NAN;
    for (float& v : row(logits, 8)) v = -2e38f;
    std::vector<std::vector<LogitEdit>> edits(9);
    std::vector<std::vector<std::uint32_t>> masks(9);
    std::vector<ShortlistRow> rows;
    for (const int r : {3, 0, 1, 2, 4, 5, 6, 7, 8}) {
      const auto i = static_cast<std::size_t>(r);
      rows.push_back({.row = r, .count = std::array{64, 1, 256, 64, 20, 256, 64, 9, 5}[i]});
      for (TokenId id = static_cast<TokenId>(i); i >= 3 && id < dim; id += 17) {
        edits[i].push_back({.id = id,
                            .bias = id % 5 == 0 ? 1.7f : 0.0f,
                            .repetition = id % 3 == 0 ? 1.3f : 1.0f,
                            .penalty = id % 2 == 0 ? 0.37f : 0.0f,
                            .taken_out = id % 7 == 0 ? 1 : 0});
        if (edits[i].size() > 3000) break;
      }
      rows.back().edits = edits[i];
      if (r != 4 && r != 5) continue;
      masks[i].resize(static_cast<std::size_t>(dim / 32));  // the rest of the row is not allowed
      for (std::uint32_t& word : masks[i]) word = r == 4 ? 0 : random() & random();
      if (r == 4) masks[i][0] = 0x00100100u;
      rows.back().allowed = masks[i];
    }
    const std::vector<Shortlist> got =
        backend.shortlist({.x = backend.upload(logits), .rows = rows});
    bool same = got.size() == rows.size();
    for (std::size_t i = 0; same && i < rows.size(); ++i) {
      const Shortlist want = define_shortlist(row(logits, rows[i].row), rows[i]);
      same = want.is_finite == got[i].is_finite && want.first.size() == got[i].first.size();
      for (std::size_t c = 0; same && c < want.first.size(); ++c) {
        same =
            want.first[c].id == got[i].first[c].id && want.first[c].value == got[i].first[c].value;
      }
      if (!same) std::printf("  row %d differs\n", rows[i].row);
    }
    report.expect("shortlists of " + std::to_string(dim) + " logits", same);
  }
}

struct AttentionCase {
  const char* name;
  int num_heads, num_kv_heads, head_dim, window;
  std::vector<std::pair<int, int>> rows;  // first position, tokens
};

// Earlier positions are stored by kv_append, like the step's own.
void check_attention_case(Backend& backend, const AttentionCase& c, Report& report) {
  const KvGeometry geometry{.num_kv_heads = c.num_kv_heads, .head_dim = c.head_dim};
  const float scale = 0.11f;
  std::int64_t tokens = 0;
  for (const auto& [first, count] : c.rows) tokens += count;
  const Tensor q = activations({tokens, c.num_heads, c.head_dim}, 1);
  const Tensor want = host_tensor(q.shape(), DType::kF32);
  std::vector<DevicePages> pages;
  std::vector<KvRow> rows;
  pages.reserve(c.rows.size());
  int first_row = 0;
  for (const auto& [first, count] : c.rows) {
    const int all = first + count;
    const int blocks = (all + 31) / 32;
    pages.emplace_back(backend, geometry, 0, blocks);
    const Tensor k = activations({all, c.num_kv_heads, c.head_dim}, 100 + pages.size());
    const Tensor v = activations({all, c.num_kv_heads, c.head_dim}, 200 + pages.size());
    // In two pieces, so that a page is written by two calls.
    for (const auto& [begin, end] : {std::pair{0, first}, std::pair{first, all}}) {
      if (begin == end) continue;
      const KvRow part{0, end - begin, begin, pages.back().view()};
      ops::kv_append(backend, on_card(backend, k.rows(begin, end)),
                     on_card(backend, v.rows(begin, end)), geometry, {&part, 1});
    }
    // The same in the CPU's layout.
    const auto page_floats = static_cast<std::int64_t>(tensor::kv_page_floats(geometry));
    const Tensor storage = host_tensor({blocks, page_floats}, DType::kF32);
    std::fill(floats(storage).begin(), floats(storage).end(), 0.0f);
    std::vector<float*> host_pages;
    for (int b = 0; b < blocks; ++b) host_pages.push_back(storage.data<float>() + b * page_floats);
    const auto dim = static_cast<std::size_t>(c.head_dim);
    for (int p = 0; p < all; ++p) {
      for (int h = 0; h < c.num_kv_heads; ++h) {
        float* page = host_pages[static_cast<std::size_t>(p / 32)];
        const auto lane = static_cast<std::size_t>(p % 32);
        for (std::size_t d = 0; d < dim; ++d) {
          const std::size_t at = static_cast<std::size_t>(h) * dim + d;
          page[tensor::kv_k_offset(geometry, h) + d * 32 + lane] = row(k, p)[at];
          page[tensor::kv_v_offset(geometry, h) + lane * dim + d] = row(v, p)[at];
        }
      }
    }
    const KvView view{host_pages.data(), 0, blocks};
    for (int t = 0; t < count; ++t) {
      for (int h = 0; h < c.num_heads; ++h) {
        const std::size_t at = static_cast<std::size_t>(h) * dim;
        define_attention(row(q, first_row + t).subspan(at, dim), geometry,
                         h / (c.num_heads / c.num_kv_heads), view, first + t, c.window, scale,
                         row(want, first_row + t).subspan(at, dim));
      }
    }
    rows.push_back({first_row, count, first, pages.back().view()});
    first_row += count;
  }
  const Tensor card = on_card(backend, q);
  const Tensor got =
      backend.to_host(ops::attention(backend, card, geometry, rows, c.window, scale));
  const Tensor wide = back(backend, backend.upload(got));
  report.error(std::string("attention ") + c.name, relative_error(floats(wide), floats(want)),
               kProduct);
  // Every token alone takes the decode kernel.
  bool same = true;
  for (const KvRow& r : rows) {
    for (int t = 0; t < r.num_tokens; ++t) {
      const KvRow one{0, 1, r.first_position + t, r.kv};
      const std::int64_t at = r.first_row + t;
      const Tensor alone = backend.to_host(
          ops::attention(backend, card.rows(at, at + 1), geometry, {&one, 1}, c.window, scale));
      same = same && same_bytes(alone, got.rows(at, at + 1));
    }
  }
  report.expect(std::string("attention ") + c.name + ": tokens alone have the same bits", same);
}

}  // namespace

int check_self_test(Backend& backend) {
  const backend::cuda::SelfTest test = backend::cuda::cuda_device(backend)->self_test();
  std::printf("wgmma against mma.sync: %lld outputs, %lld differ\n", test.outputs,
              test.differences);
  return test.differences == 0 ? 0 : 1;
}

int check_ops(Backend& backend) {
  std::printf("operations against the definition\n");
  Report report;
  check_linears(backend, report);
  check_elementwise(backend, report);
  check_shortlists(backend, report);
  for (const AttentionCase& c :
       {AttentionCase{"first_token", 2, 1, 64, 0, {{0, 1}}},
        AttentionCase{"one_page", 4, 2, 32, 0, {{0, 20}}},
        AttentionCase{"page_edges", 2, 2, 32, 0, {{31, 2}, {63, 1}, {32, 1}, {95, 40}}},
        AttentionCase{"wide_head", 8, 1, 512, 0, {{70, 3}, {300, 90}}},
        AttentionCase{"many_heads", 40, 2, 64, 0, {{33, 5}}},
        AttentionCase{"window_inside_page", 2, 1, 32, 5, {{0, 50}, {200, 3}}},
        AttentionCase{"window_of_one", 2, 1, 32, 1, {{0, 3}, {64, 2}}},
        AttentionCase{"window_on_edges", 4, 2, 64, 64, {{63, 3}, {126, 5}, {1000, 1}}},
        AttentionCase{"window_over_chunks", 4, 2, 256, 300, {{0, 170}, {511, 140}, {700, 1}}},
        AttentionCase{"full_over_chunks", 16, 2, 128, 0, {{0, 300}, {513, 70}, {1023, 1}}},
        AttentionCase{"decode_batch", 4, 1, 64, 0, {{5, 1}, {64, 1}, {300, 1}, {31, 1}}},
        AttentionCase{"flagship_window", 32, 16, 256, 1024, {{1200, 70}, {40, 1}, {2047, 1}}},
        AttentionCase{"flagship_full", 32, 4, 512, 0, {{600, 20}, {1500, 1}}}}) {
    check_attention_case(backend, c, report);
  }
  return report.failures();
}

}  // namespace flotilla::cuda_check
