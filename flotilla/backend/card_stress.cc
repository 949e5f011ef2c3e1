#include "flotilla/backend/card_stress.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/device_error.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/base/check.h"

namespace flotilla::backend {
namespace {

using tensor::DType;

constexpr std::int64_t kHidden = 5376, kMlp = 21504, kVocab = 262144, kMostRows = 512;
constexpr std::array<std::int64_t, 14> kRowCounts = {1,  2,  3,  7,  8,   16,  17,
                                                     31, 33, 64, 65, 128, 200, kMostRows};
constexpr KvGeometry kWindow{.num_kv_heads = 16, .head_dim = 256};
constexpr KvGeometry kFull{.num_kv_heads = 4, .head_dim = 512};
constexpr int kHeads = 32, kWindowLength = 1024, kBlocks = 64;  // 2,048 positions

class Stress {
 public:
  explicit Stress(Backend& backend) : backend_(backend), device_(*cuda::cuda_device(backend)) {
    add_products();
    add_rows();
    add_attention("window", kWindow, kWindowLength);
    add_attention("full", kFull, 0);
    add_choices();
  }

  CardStress run(int rounds, const std::function<void(int)>& progress) {
    CardStress report{.cases = static_cast<int>(cases_.size()), .rounds = rounds, .digest = ""};
    const Tensor zeros(tensor::make_host_buffer(cases_.size() * 8), 0,
                       Shape{static_cast<std::int64_t>(cases_.size()), 2}, DType::kI32);
    std::memset(zeros.bytes(), 0, zeros.num_bytes());
    const Tensor counts = backend_.upload(zeros);
    first(report);
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::vector<Tensor>> outs;
      for (const Case& c : cases_) outs.push_back(c.run());
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        for (std::size_t t = 0; t < outs[i].size(); ++t)
          device_.count_differences(outs[i][t], cases_[i].first[t], counts.rows(at, at + 1));
      }
      shortlist_drifts_ += shortlists() == first_shortlists_ ? 0 : 1;
      report.words += words_;
      constexpr int kEvery = 20;
      if ((round + 1) % kEvery == 0 || round + 1 == rounds) {
        backend_.wait();
        if (progress) progress(round + 1);
      }
    }
    const Tensor found = backend_.to_host(counts);
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      std::int64_t count = 0;
      std::memcpy(&count, found.bytes() + i * 8, 8);
      if (count != 0) report.drifting.push_back(cases_[i].name);
    }
    if (shortlist_drifts_ != 0) report.drifting.emplace_back("shortlist");
    return report;
  }

 private:
  struct Case {
    std::string name;
    std::function<std::vector<Tensor>()> run;
    std::vector<Tensor> first = {};  // results of the first time
  };
  struct Pages {
    std::shared_ptr<tensor::Buffer> memory;
    std::vector<float*> pages;
    KvView view() const { return {pages.data(), 0, static_cast<int>(pages.size())}; }
    Tensor bytes() const {
      const auto size = static_cast<std::int64_t>(memory->size());
      return Tensor(memory, 0, Shape{size}, DType::kU8);
    }
  };

  void add(std::string name, std::function<std::vector<Tensor>()> run) {
    cases_.push_back({std::move(name), std::move(run)});
  }
  Tensor values(const Shape& shape, std::uint64_t seed) {
    const Tensor wide = fixed_activations(shape, seed);
    Tensor rounded(tensor::make_host_buffer(wide.num_bytes() / 2), 0, shape, DType::kBF16);
    for (std::int64_t i = 0; i < shape.num_elements(); ++i)
      rounded.data<std::uint16_t>()[i] = tensor::f32_to_bf16(wide.data<float>()[i]);
    return backend_.upload(rounded);
  }
  Tensor floats(const Shape& shape, std::uint64_t seed) {
    return backend_.upload(fixed_activations(shape, seed));
  }
  Tensor output(const Shape& shape) { return backend_.allocate(shape, DType::kBF16); }
  // For operations that write over their input.
  Tensor copy(const Tensor& of) {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(of.dim(0)));
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor out = backend_.allocate(of.shape(), of.dtype());
    backend_.gather_rows({.source = of, .rows = rows, .out = out});
    return out;
  }

  void add_product(const std::string& name, const std::vector<std::int64_t>& n, std::int64_t k) {
    auto weights = std::make_shared<std::vector<std::unique_ptr<Matrix>>>();
    for (const std::int64_t rows : n)
      weights->push_back(device_.synthetic_matrix(rows, k, ++seed_));
    const Tensor x = wide_.reshape({wide_.shape().num_elements() / k, k});
    for (const std::int64_t m : kRowCounts) {
      add(name + " of " + std::to_string(m) + " rows", [this, weights, x, m] {
        std::vector<Tensor> outs;
        std::vector<const Matrix*> matrices;
        for (const auto& w : *weights) {
          matrices.push_back(w.get());
          outs.push_back(output({m, w->n()}));
        }
        backend_.linear_group({.weights = matrices, .x = x.rows(0, m), .outs = outs});
        return outs;
      });
    }
  }

  void add_products() {
    wide_ = values({kMostRows, kMlp}, 1);
    hidden_ = values({kMostRows, kHidden}, 2);
    add_product("q + k + v", {8192, 4096, 4096}, kHidden);
    add_product("q + k of a full layer", {16384, 2048}, kHidden);
    add_product("o", {kHidden}, 8192);
    add_product("o of a full layer", {kHidden}, 16384);
    add_product("gate + up", {kMlp, kMlp}, kHidden);
    add_product("down", {kHidden}, kMlp);
    const std::shared_ptr<Matrix> gated = device_.synthetic_matrix(2 * kMlp, kHidden, 40);
    head_ = device_.synthetic_matrix(kVocab, kHidden, 41);
    for (const std::int64_t m : kRowCounts) {
      add("gated gate + up of " + std::to_string(m) + " rows", [this, gated, m] {
        const Tensor out = output({m, kMlp});
        backend_.linear_gated({.weight = gated.get(), .x = hidden_.rows(0, m), .out = out});
        return std::vector<Tensor>{out};
      });
      if (m > 64) continue;
      add("head of " + std::to_string(m) + " rows",
          [this, m] { return std::vector<Tensor>{logits(m)}; });
    }
  }
  Tensor logits(std::int64_t m) {
    const Tensor out = backend_.allocate({m, kVocab}, DType::kF32);
    backend_.linear({.weight = head_.get(), .x = hidden_.rows(0, m), .out = out});
    return out;
  }

  void add_rows() {
    const Tensor weight = floats({kHidden}, 3), next = floats({kHidden}, 4);
    const Tensor residual = floats({kMostRows, kHidden}, 5);
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{64}, kMostRows}) {
      const std::string rows = " of " + std::to_string(m) + " rows";
      add("rms_norm" + rows, [this, weight, m] {
        const Tensor out = output({m, kHidden});
        backend_.rms_norm({.x = hidden_.rows(0, m), .weight = weight, .eps = 1e-6f, .out = out});
        return std::vector<Tensor>{out};
      });
      const auto norm_add = [this, weight, residual, m] {
        return NormAddArgs{.x = hidden_.rows(0, m),
                           .weight = weight,
                           .eps = 1e-6f,
                           .scale = 0.7f,
                           .residual = copy(residual.rows(0, m))};
      };
      add("norm_add" + rows, [this, norm_add] {
        const NormAddArgs args = norm_add();
        backend_.norm_add(args);
        return std::vector<Tensor>{args.residual};
      });
      add("norm_add_norm" + rows, [this, norm_add, next, m] {
        const NormAddNormArgs args{
            .add = norm_add(), .weight = next, .eps = 1e-6f, .out = output({m, kHidden})};
        backend_.norm_add_norm(args);
        return std::vector<Tensor>{args.add.residual, args.out};
      });
      add("gelu_mul" + rows, [this, m] {
        const Tensor gate = wide_.rows(0, m), out = output(gate.shape());
        backend_.gelu_mul({.gate = gate, .up = gate, .out = out});
        return std::vector<Tensor>{out};
      });
      add("rope" + rows, [this, m] {
        const Tensor x = copy(hidden_.rows(0, m)).reshape({m, kHidden / 256, 256});
        std::vector<std::int32_t> positions(static_cast<std::size_t>(m));
        for (std::size_t i = 0; i < positions.size(); ++i)
          positions[i] = static_cast<std::int32_t>(i * 511 + 3);
        backend_.rope({.x = x, .positions = positions, .inverse_frequencies = frequencies_});
        return std::vector<Tensor>{x};
      });
      add("embedding" + rows, [this, m] {
        std::vector<TokenId> ids(static_cast<std::size_t>(m));
        for (std::size_t i = 0; i < ids.size(); ++i)
          ids[i] = static_cast<TokenId>((i * 7919 + 11) % kVocab);
        const Tensor out = backend_.allocate({m, kHidden}, DType::kF32);
        backend_.embedding({.table = head_.get(), .ids = ids, .scale = 73.5f, .out = out});
        return std::vector<Tensor>{out};
      });
    }
  }

  Pages pages(const KvGeometry& geometry, int blocks) {
    KvGeometry stored = geometry;
    stored.element_bytes = backend_.kv_element_bytes();
    const std::size_t page = tensor::kv_page_bytes(stored);
    auto memory = backend_.page_device()->allocate_pages(page * static_cast<std::size_t>(blocks));
    if (!memory.ok()) throw DeviceError(memory.error().message);
    Pages out{.memory = std::move(memory).value(), .pages = {}};
    for (int b = 0; b < blocks; ++b)
      out.pages.push_back(
          reinterpret_cast<float*>(out.memory->data() + static_cast<std::size_t>(b) * page));
    return out;
  }
  Shape kv_shape(const KvGeometry& g, std::int64_t tokens) {
    return {tokens, g.num_kv_heads, g.head_dim};
  }

  void add_attention(const std::string& kind, const KvGeometry& g, int window) {
    const auto context = std::make_shared<Pages>(pages(g, kBlocks));
    constexpr int kTokens = kBlocks * tensor::kKvBlock;
    const KvRow filled{.num_tokens = kTokens, .kv = context->view()};
    const Tensor k = values(kv_shape(g, kTokens), 21), v = values(kv_shape(g, kTokens), 22);
    backend_.kv_append({.k = k, .v = v, .geometry = g, .rows = {&filled, 1}});
    const Tensor q = values({kMostRows, kHeads, g.head_dim}, 23);

    const auto written = std::make_shared<Pages>(pages(g, 20));
    add("kv_append of 512 tokens, " + kind, [this, written, k, v, g] {
      const KvRow row{.num_tokens = kMostRows, .first_position = 77, .kv = written->view()};
      backend_.kv_append(
          {.k = k.rows(0, kMostRows), .v = v.rows(0, kMostRows), .geometry = g, .rows = {&row, 1}});
      return std::vector<Tensor>{written->bytes()};
    });
    const auto attention = [=, this](const std::vector<KvRow>& rows, std::int64_t tokens) {
      const Tensor out = output({tokens, kHeads, g.head_dim});
      backend_.attention({.q = q.rows(0, tokens),
                          .geometry = g,
                          .rows = rows,
                          .window = window,
                          .scale = 0.06f,
                          .out = out});
      return std::vector<Tensor>{out};
    };
    for (const int m : {1, 8, 64}) {
      std::vector<KvRow> rows;
      for (int i = 0; i < m; ++i)
        rows.push_back({.first_row = i,
                        .num_tokens = 1,
                        .first_position = kTokens - 1 - i * 29,
                        .kv = context->view()});
      add("attention of " + std::to_string(m) + " rows, " + kind,
          [attention, rows, m, context] { return attention(rows, m); });
    }
    add("attention of a prompt of 512, " + kind, [attention, context] {
      return attention({{.num_tokens = kMostRows, .first_position = 1400, .kv = context->view()}},
                       kMostRows);
    });
    add("attention of two prompts and a row, " + kind, [attention, context] {
      return attention(
          {{.num_tokens = 200, .first_position = 0, .kv = context->view()},
           {.first_row = 200,
            .num_tokens = 1,
            .first_position = kTokens - 1,
            .kv = context->view()},
           {.first_row = 201, .num_tokens = 140, .first_position = 1000, .kv = context->view()}},
          341);
    });
    // Each row writes the page that it then reads.
    constexpr std::int64_t kRows = 8;
    const auto own = std::make_shared<std::vector<Pages>>();
    for (int i = 0; i < kRows; ++i) {
      own->push_back(pages(g, kBlocks));
      const KvRow row{.num_tokens = kTokens, .kv = own->back().view()};
      backend_.kv_append({.k = k, .v = v, .geometry = g, .rows = {&row, 1}});
    }
    const Tensor norm = floats({g.head_dim}, 24);
    std::vector<float> frequencies(static_cast<std::size_t>(g.head_dim / 2), 0.1f);
    add("attention with its inputs, " + kind, [=, this] {
      std::vector<KvRow> rows;
      std::vector<std::int32_t> positions;
      for (int i = 0; i < kRows; ++i) {
        positions.push_back(kTokens - 1 - i * 200);
        rows.push_back({.first_row = i,
                        .num_tokens = 1,
                        .first_position = positions.back(),
                        .kv = (*own)[static_cast<std::size_t>(i)].view()});
      }
      const Tensor query = copy(q.rows(0, kRows));
      backend_.attention_inputs({.q = query,
                                 .k = copy(k.rows(0, kRows)),
                                 .v = copy(v.rows(0, kRows)),
                                 .q_norm = norm,
                                 .k_norm = norm,
                                 .eps = 1e-6f,
                                 .positions = positions,
                                 .inverse_frequencies = frequencies,
                                 .geometry = g,
                                 .rows = rows,
                                 .window = window});
      const Tensor out = output(query.shape());
      backend_.attention(
          {.q = query, .geometry = g, .rows = rows, .window = window, .scale = 0.06f, .out = out});
      return std::vector<Tensor>{out, own->front().bytes()};
    });
  }

  void add_choices() {
    scores_ = floats({64, kVocab}, 31);
    add("softcap of 64 rows", [this] {
      const Tensor x = copy(scores_);
      backend_.softcap({.x = x, .cap = 30.0f});
      return std::vector<Tensor>{x};
    });
    add("argmax of 64 rows", [this] {
      const Tensor out = backend_.allocate({64}, DType::kI32);
      backend_.argmax({.x = scores_, .out = out});
      return std::vector<Tensor>{out};
    });
  }
  // Its results come to the host.
  std::vector<std::pair<TokenId, float>> shortlists() {
    std::vector<ShortlistRow> rows;
    for (int i = 0; i < 8; ++i) rows.push_back({.row = i, .count = 32 * (i + 1)});
    std::vector<std::pair<TokenId, float>> out;
    for (const Shortlist& list : backend_.shortlist({.x = scores_, .rows = rows})) {
      for (const auto& entry : list.first) out.emplace_back(entry.id, entry.value);
    }
    return out;
  }

  // Keeps the results of the first time, and their digest.
  void first(CardStress& report) {
    struct Deleter {
      void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    };
    const std::unique_ptr<EVP_MD_CTX, Deleter> digest(EVP_MD_CTX_new());
    FLOTILLA_CHECK(digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1,
                   "SHA-256 is not available");
    const auto add_bytes = [&](const void* data, std::size_t bytes) {
      FLOTILLA_CHECK(EVP_DigestUpdate(digest.get(), data, bytes) == 1, "SHA-256 failed");
    };
    for (Case& c : cases_) {
      for (const Tensor& out : c.run()) {
        const Tensor host = backend_.to_host(out);
        add_bytes(c.name.data(), c.name.size());
        add_bytes(host.bytes(), host.num_bytes());
        c.first.push_back(backend_.upload(host));
        words_ += static_cast<std::int64_t>(host.num_bytes() / 4);
      }
    }
    first_shortlists_ = shortlists();
    for (const auto& [id, value] : first_shortlists_) {
      add_bytes(&id, sizeof(id));
      add_bytes(&value, sizeof(value));
    }
    std::array<unsigned char, 32> hash{};
    FLOTILLA_CHECK(EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr) == 1, "SHA-256 failed");
    for (const unsigned char byte : hash) {
      report.digest += "0123456789abcdef"[byte >> 4];
      report.digest += "0123456789abcdef"[byte & 15];
    }
  }

  Backend& backend_;
  cuda::CudaDevice& device_;
  std::uint64_t seed_ = 0;
  Tensor wide_, hidden_, scores_;
  std::unique_ptr<Matrix> head_;
  std::vector<float> frequencies_ = std::vector<float>(128, 0.3f);
  std::vector<Case> cases_;
  std::int64_t words_ = 0;  // compared in a round
  std::vector<std::pair<TokenId, float>> first_shortlists_;
  int shortlist_drifts_ = 0;
};

}  // namespace

CardStress stress_card(Backend& backend, int rounds, const std::function<void(int)>& progress) {
  FLOTILLA_CHECK(cuda::cuda_device(backend) != nullptr, "only a card is stressed this way");
  return Stress(backend).run(rounds, progress);
}

}  // namespace flotilla::backend
