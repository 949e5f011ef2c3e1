// Whole models on the card against stored outputs, and against themselves in other batches.
//
// Tolerance of logits: the references are float32, and their random models amplify roundings: the
// same computation on the CPU with bf16 roundings (bf16_backend.h) is 1 % of the logits' spread
// away at the first token and 30 to 50 % after some tens. So the limit is 1.5 times that distance,
// plus 1 %. Greedy tokens must be equal up to a margin below twice the largest difference seen. The
// bundled model is trained, and must give every completion exactly.
#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "bf16_backend.h"
#include "check_util.h"
#include "checks.h"
#include "device_kv.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/mapped_file.h"
#include "flotilla/checkpoint/safetensors.h"
#include "flotilla/json/json.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::cuda_check {
namespace {

using models::ForwardRow;
using models::WantsLogits;

struct Loaded {
  std::unique_ptr<models::CausalLM> model;
  std::unique_ptr<models::Workspace> workspace;
};

Result<Loaded> load(Backend& backend, const std::string& folder) {
  FLOTILLA_TRY(const auto checkpoint, checkpoint::Checkpoint::open(folder));
  Loaded loaded;
  FLOTILLA_TRY(loaded.model, models::load_model(checkpoint, backend));
  loaded.workspace = loaded.model->make_workspace();
  return loaded;
}

// Logits of every position, in steps of `chunk` tokens (0: at once).
std::vector<float> logits_of(Backend& backend, Loaded& m, std::span<const TokenId> ids,
                             std::size_t chunk) {
  const DeviceKv kv(backend, m.model->state_layout(), static_cast<std::int64_t>(ids.size()));
  std::vector<float> all;
  const std::size_t step = chunk == 0 ? ids.size() : chunk;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    const ForwardRow row{.ids = ids.subspan(at, std::min(step, ids.size() - at)),
                         .first_position = static_cast<int>(at),
                         .wants_logits = WantsLogits::kAll,
                         .layers = kv.views()};
    const Tensor out = m.model->forward(backend, *m.workspace, {.rows = {&row, 1}});
    all.insert(all.end(), floats(out).begin(), floats(out).end());
  }
  return all;
}

// Decodes greedily; `others` sequences of other lengths run in the same steps. With `logits`, those
// of the sequence are appended.
std::vector<TokenId> generate(Backend& backend, Loaded& m, std::span<const TokenId> prompt,
                              std::size_t count, std::size_t others,
                              std::vector<float>* logits = nullptr) {
  const auto length = static_cast<std::int64_t>(prompt.size() + count);
  std::vector<DeviceKv> kv;
  std::vector<std::vector<TokenId>> next;
  std::vector<int> position(others + 1, 0);
  for (std::size_t i = 0; i <= others; ++i) {
    kv.emplace_back(backend, m.model->state_layout(), length);
    const std::size_t skip = i == others / 2 ? 0 : std::min(prompt.size() - 1, i + 1);
    next.emplace_back(prompt.begin() + static_cast<std::ptrdiff_t>(skip), prompt.end());
  }
  const std::size_t mine = others / 2;
  std::vector<TokenId> out;
  while (out.size() < count) {
    std::vector<ForwardRow> rows;
    for (std::size_t i = 0; i <= others; ++i) {
      rows.push_back({.ids = next[i],
                      .first_position = position[i],
                      .wants_logits = WantsLogits::kLast,
                      .layers = kv[i].views()});
    }
    std::vector<TokenId> chosen(others + 1);
    if (logits == nullptr) {
      m.model->forward(backend, *m.workspace, {.rows = rows, .greedy = chosen});
    } else {
      const Tensor t = m.model->forward(backend, *m.workspace, {.rows = rows});
      for (std::size_t i = 0; i <= others; ++i) {
        const auto values = row(t, static_cast<std::int64_t>(i));
        chosen[i] =
            static_cast<TokenId>(std::max_element(values.begin(), values.end()) - values.begin());
        if (i == mine) logits->insert(logits->end(), values.begin(), values.end());
      }
    }
    for (std::size_t i = 0; i <= others; ++i) {
      position[i] += static_cast<int>(next[i].size());
      next[i].assign(1, chosen[i]);
    }
    out.push_back(chosen[mine]);
  }
  return out;
}

struct Expected {
  std::map<std::string, std::vector<float>> numbers;
  std::map<std::string, std::vector<TokenId>> ids;
};

Result<Expected> read_expected(const std::string& path) {
  FLOTILLA_TRY(const auto file, checkpoint::MappedFile::open(path));
  FLOTILLA_TRY(const auto header, checkpoint::parse_safetensors_header({file->data(), file->size()},
                                                                       file->size(), path));
  Expected expected;
  for (const auto& entry : header.tensors) {
    const std::byte* from = file->data() + entry.offset;
    if (entry.dtype == DType::kI32) {
      auto& to = expected.ids[entry.name];
      to.resize(entry.bytes / sizeof(TokenId));
      std::memcpy(to.data(), from, entry.bytes);
    } else if (entry.dtype == DType::kF32) {
      auto& to = expected.numbers[entry.name];
      to.resize(entry.bytes / sizeof(float));
      std::memcpy(to.data(), from, entry.bytes);
    }
  }
  return expected;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Deviation from the mean, the spread that differences are measured by.
double spread(std::span<const float> values) {
  double mean = 0, sum = 0;
  for (const float v : values) mean += v;
  mean /= static_cast<double>(values.size());
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double deviation(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    sum += d * d;
  }
  return a.size() == b.size() ? std::sqrt(sum / static_cast<double>(b.size())) : INFINITY;
}

void check_reference(Backend& backend, const std::string& folder, Report& report) {
  auto loaded = load(backend, folder);
  auto expected = read_expected(folder + "/expected.safetensors");
  if (!loaded.ok() || !expected.ok()) {
    report.expect(folder + ": " + (loaded.ok() ? expected.error().message : loaded.error().message),
                  false);
    return;
  }
  const auto rounded = make_bf16_backend();
  auto on_cpu = load(*rounded, folder);
  for (int p = 0; expected->ids.contains("p" + std::to_string(p) + ".ids"); ++p) {
    const std::string name = "p" + std::to_string(p);
    const auto& ids = expected->ids[name + ".ids"];
    const auto& want = expected->numbers[name + ".logits"];
    const std::vector<float> got = logits_of(backend, *loaded, ids, 0);
    double largest = 0;
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i)
      largest = std::max(largest, std::fabs(static_cast<double>(got[i]) - want[i]));
    const double by_cpu = deviation(logits_of(*rounded, *on_cpu, ids, 0), want) / spread(want);
    report.error(name + ", " + std::to_string(ids.size()) + " tokens, of the spread",
                 deviation(got, want) / spread(want), 1.5 * by_cpu + 0.01);
    for (const std::size_t chunk : {1u, 7u, 16u, 33u}) {
      report.expect(name + " in chunks of " + std::to_string(chunk) + " has the same bits",
                    same_bits(logits_of(backend, *loaded, ids, chunk), got));
    }
    const auto& greedy = expected->ids[name + ".greedy"];
    const auto& margins = expected->numbers[name + ".margin"];
    const auto chosen = generate(backend, *loaded, ids, greedy.size(), 0);
    std::size_t equal = 0;
    while (equal < greedy.size() && chosen[equal] == greedy[equal]) ++equal;
    const bool excused = equal == greedy.size() || margins[equal] < 2 * largest;
    std::printf("  %-46s %zu of %zu greedy tokens%s; largest logit difference %.3f\n", name.c_str(),
                equal, greedy.size(),
                equal == greedy.size() ? ""
                : excused              ? ", then a margin within the tolerance"
                                       : ", then a DIFFERENT token",
                largest);
    report.expect(name + " greedy tokens", excused);
    std::vector<float> alone, among;
    generate(backend, *loaded, ids, 12, 0, &alone);
    for (const std::size_t others : {1u, 3u, 8u, 20u}) {
      among.clear();
      generate(backend, *loaded, ids, 12, others, &among);
      report.expect(name + " among " + std::to_string(others) + " others has the same bits",
                    same_bits(alone, among));
    }
    auto* device = backend::cuda::cuda_device(backend);
    device->set_graphs(false);
    among.clear();
    generate(backend, *loaded, ids, 12, 3, &among);
    report.expect(name + " without recorded steps has the same bits", same_bits(alone, among));
    device->set_graphs(true);
  }
}

void check_bundled(Backend& backend, const std::string& source, Report& report) {
  namespace bj = boost::json;
  auto loaded = load(backend, source + "/models/flotilla-tiny");
  auto cases = json::parse_file(source + "/tests/tiny-model/cases.json");
  if (!loaded.ok() || !cases.ok()) {
    report.expect(
        "bundled model: " + (loaded.ok() ? cases.error().message : loaded.error().message), false);
    return;
  }
  const auto ids_of = [](const bj::value& list) {
    std::vector<TokenId> ids;
    for (const bj::value& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
    return ids;
  };
  int compared = 0, equal = 0, batched = 0;
  for (const bj::value& item : cases->at("cases").as_array()) {
    if (!item.at("robust").as_bool() || json::find(item, "image") != nullptr ||
        json::find(item, "picture") != nullptr)
      continue;
    ++compared;
    const auto want = ids_of(item.at("completion_ids"));
    const auto prompt = ids_of(item.at("prompt_ids"));
    if (generate(backend, *loaded, prompt, want.size(), 0) == want) {
      ++equal;
    } else {
      std::printf("  case %s differs\n", bj::serialize(item.at("id")).c_str());
    }
    if (compared % 8 == 0)
      batched += generate(backend, *loaded, prompt, want.size(), 5) == want ? 0 : 1;
  }
  std::printf("  bundled model: %d of %d completions equal; %d differ in a batch\n", equal,
              compared, batched);
  report.expect("bundled model", compared >= 40 && equal == compared && batched == 0);
}

}  // namespace

int report_bf16(const std::string& source) {
  int failures = 0;
  for (const char* name : {"gemma4-dense", "gemma4-ple"}) {
    const std::string folder = source + "/tests/reference/" + name;
    const auto rounded = make_bf16_backend();
    auto loaded = load(*rounded, folder);
    auto expected = read_expected(folder + "/expected.safetensors");
    if (!loaded.ok() || !expected.ok()) return failures + 1;
    for (int p = 0; expected->ids.contains("p" + std::to_string(p) + ".ids"); ++p) {
      const auto& ids = expected->ids["p" + std::to_string(p) + ".ids"];
      const auto& want = expected->numbers["p" + std::to_string(p) + ".logits"];
      const std::vector<float> got = logits_of(*rounded, *loaded, ids, 0);
      const std::size_t vocab = want.size() / ids.size();
      std::printf("%s p%d, %zu tokens: of the spread %.4f; by position:", name, p, ids.size(),
                  deviation(got, want) / spread(want));
      for (std::size_t t = 0; t < ids.size(); t += std::max<std::size_t>(1, ids.size() / 12)) {
        const auto at = [&](const std::vector<float>& v) {
          return std::vector<float>(v.begin() + static_cast<std::ptrdiff_t>(t * vocab),
                                    v.begin() + static_cast<std::ptrdiff_t>((t + 1) * vocab));
        };
        std::printf(" %zu:%.3f", t, deviation(at(got), at(want)) / spread(want));
      }
      std::printf("\n");
    }
  }
  return failures;
}

int check_models(Backend& backend, const std::string& source) {
  Report report;
  for (const char* name : {"gemma4-dense", "gemma4-ple"}) {
    std::printf("reference %s\n", name);
    check_reference(backend, source + "/tests/reference/" + name, report);
  }
  std::printf("bundled model\n");
  check_bundled(backend, source, report);
  std::printf("  %llu decode steps were replays of recorded ones\n",
              static_cast<unsigned long long>(backend::cuda::cuda_device(backend)->num_replays()));
  return report.failures();
}

}  // namespace flotilla::cuda_check
