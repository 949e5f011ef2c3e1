#include "flotilla/checkpoint/synth_writer.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "flotilla/checkpoint/safetensors_writer.h"
#include "flotilla/tensor/dtype.h"

namespace flotilla::checkpoint {
namespace {

using tensor::DType;

// SplitMix64: fast, and enough for weights that nobody interprets.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float unit() { return static_cast<float>(next() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  std::uint64_t state_;
};

// One tensor and the routine that makes its bytes.
struct Planned {
  TensorEntry entry;
  std::function<void(Random&, std::vector<std::uint64_t>&)>
      fill;  // the whole of a buffer, which is a piece of it
};

std::uint64_t bytes_of(const TensorEntry& entry) {
  return static_cast<std::uint64_t>(entry.shape.num_elements()) * tensor::dtype_bytes(entry.dtype);
}

template <class Value>
void fill_bf16(std::vector<std::uint64_t>& buffer, Value value) {
  for (std::uint64_t& word : buffer) {
    word = 0;
    for (int i = 0; i < 4; ++i) word |= std::uint64_t{tensor::f32_to_bf16(value())} << (16 * i);
  }
}

// Weights of about unit gain: the variance of q in [0, 2^bits) times scale^2 is 1 / k. Scales vary
// by group and have both signs; scales and biases are drawn by the same generator, so that a bias
// is the middle of its group's range.
void plan_matrix(const SynthMatrix& matrix, const SynthShape& shape, std::vector<Planned>& plan) {
  const double levels = std::pow(2.0, shape.bits);
  const auto scale =
      static_cast<float>(std::sqrt(12.0 / (levels * levels - 1) / static_cast<double>(matrix.k)));
  const auto middle = static_cast<float>((levels - 1) / 2);
  const auto draw = [scale](Random& random) {
    const std::uint64_t bits = random.next();
    const float size = scale * (0.75f + 0.5f * static_cast<float>(bits >> 40) * 0x1p-24f);
    return tensor::bf16_to_f32(tensor::f32_to_bf16((bits & 1) != 0 ? -size : size));
  };
  const tensor::Shape groups{matrix.n, matrix.k / shape.group};
  plan.push_back({{.name = matrix.module + ".weight",
                   .dtype = DType::kU32,
                   .shape = {matrix.n, matrix.k * shape.bits / 32}},
                  [](Random& random, auto& buffer) {
                    for (std::uint64_t& word : buffer) word = random.next();
                  }});
  plan.push_back(
      {{.name = matrix.module + ".scales", .dtype = DType::kBF16, .shape = groups},
       [draw](Random& random, auto& buffer) { fill_bf16(buffer, [&] { return draw(random); }); }});
  plan.push_back({{.name = matrix.module + ".biases", .dtype = DType::kBF16, .shape = groups},
                  [draw, middle](Random& random, auto& buffer) {
                    fill_bf16(buffer, [&] { return -middle * draw(random); });
                  }});
}

std::vector<Planned> make_plan(const SynthShape& shape) {
  std::vector<Planned> plan;
  for (const SynthMatrix& matrix : matrices(shape)) plan_matrix(matrix, shape, plan);
  for (const SynthVector& vector : vectors(shape)) {
    plan.push_back({{.name = vector.name, .dtype = DType::kBF16, .shape = {vector.n}},
                    [mean = vector.mean](Random& random, auto& buffer) {
                      fill_bf16(buffer, [&] { return mean * (0.9f + 0.2f * random.unit()); });
                    }});
  }
  return plan;
}

// Scales and biases of a module get the same stream.
std::uint64_t seed_of(const std::string& name, std::uint64_t seed) {
  const std::size_t dot = name.rfind('.');
  const std::string part = name.substr(dot + 1);
  const std::string key = part == "biases" ? name.substr(0, dot) + ".scales" : name;
  std::uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

Status write_tensor(SafetensorsWriter& writer, const Planned& planned, std::uint64_t seed,
                    const std::function<void(std::uint64_t)>& report) {
  constexpr std::size_t kWords = std::size_t{1} << 17;  // 1 MiB
  Random random(seed_of(planned.entry.name, seed));
  std::vector<std::uint64_t> buffer;
  for (std::uint64_t left = bytes_of(planned.entry); left > 0;) {
    const std::uint64_t take = std::min<std::uint64_t>(left, kWords * 8);
    buffer.resize((take + 7) / 8);
    planned.fill(random, buffer);
    FLOTILLA_TRY_STATUS(writer.write(std::as_bytes(std::span(buffer)).first(take)));
    left -= take;
    report(take);
  }
  return ok_status();
}

std::vector<std::vector<Planned>> split(std::vector<Planned> plan, std::uint64_t shard_bytes) {
  std::vector<std::vector<Planned>> shards(1);
  std::uint64_t used = 0;
  for (Planned& planned : plan) {
    const std::uint64_t bytes = bytes_of(planned.entry);
    if (used > 0 && used + bytes > shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().push_back(std::move(planned));
  }
  return shards;
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Error{ErrorCode::kUnavailable, "cannot write " + path};
  return ok_status();
}

Status copy_tokenizer(const std::string& from, const std::string& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json"}) {
    std::error_code ec;
    std::filesystem::copy_file(from + "/" + name, to + "/" + name,
                               std::filesystem::copy_options::overwrite_existing, ec);
    if (ec)
      return Error{ErrorCode::kNotFound, "cannot copy " + from + "/" + name + ": " + ec.message()};
  }
  return ok_status();
}

struct Shard {
  std::string name;
  std::vector<Planned> tensors;
};

Status write_shard(const Shard& shard, const SynthOptions& options,
                   const std::function<void(std::uint64_t)>& report) {
  std::vector<TensorEntry> entries;
  for (const Planned& planned : shard.tensors) entries.push_back(planned.entry);
  FLOTILLA_TRY(SafetensorsWriter writer,
               SafetensorsWriter::create(options.folder + "/" + shard.name, std::move(entries)));
  for (const Planned& planned : shard.tensors)
    FLOTILLA_TRY_STATUS(write_tensor(writer, planned, options.seed, report));
  return writer.close();
}

// The streams of tensors do not depend on each other: files may be written in any order.
Status write_shards(const std::vector<Shard>& shards, const SynthOptions& options,
                    std::uint64_t total) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::uint64_t done = 0;        // guarded by mutex
  std::optional<Error> failure;  // guarded by mutex
  const std::function<void(std::uint64_t)> report = [&](std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (options.progress) options.progress(done, total);
  };
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < shards.size();) {
      Status status = write_shard(shards[i], options, report);
      const std::lock_guard lock(mutex);
      if (!status.ok()) failure = std::move(status).error();
      if (failure) return;
    }
  };
  const unsigned wanted = options.num_threads > 0 ? static_cast<unsigned>(options.num_threads)
                                                  : std::thread::hardware_concurrency();
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min<std::size_t>(std::max(1u, wanted), shards.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) return std::move(*failure);
  return ok_status();
}

std::vector<Shard> make_shards(const SynthShape& shape, std::uint64_t shard_bytes) {
  std::vector<std::vector<Planned>> parts = split(make_plan(shape), shard_bytes);
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    char name[64] = "model.safetensors";
    if (parts.size() > 1)
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, parts.size());
    shards.push_back({name, std::move(parts[i])});
  }
  return shards;
}

}  // namespace

Result<SynthWritten> write_synthetic(const SynthShape& shape, const SynthOptions& options) {
  if (const std::string fault = find_fault(shape); !fault.empty())
    return Error{ErrorCode::kInvalidArgument, fault};
  std::error_code ec;
  std::filesystem::create_directories(options.folder, ec);
  if (ec)
    return Error{ErrorCode::kUnavailable, "cannot create " + options.folder + ": " + ec.message()};
  if (std::filesystem::exists(options.folder + "/config.json", ec)) {
    return Error{ErrorCode::kAlreadyExists, options.folder + " already holds a model"};
  }
  if (!options.tokenizer_from.empty())
    FLOTILLA_TRY_STATUS(copy_tokenizer(options.tokenizer_from, options.folder));

  SynthWritten written;
  const std::vector<Shard> shards = make_shards(shape, options.shard_bytes);
  boost::json::object map;
  for (const Shard& shard : shards) {
    for (const Planned& planned : shard.tensors) {
      map[planned.entry.name] = shard.name;
      written.num_bytes += bytes_of(planned.entry);
    }
  }
  FLOTILLA_TRY_STATUS(write_shards(shards, options, written.num_bytes));
  written.num_files = shards.size();
  for (const SynthMatrix& matrix : matrices(shape)) written.num_parameters += matrix.n * matrix.k;
  for (const SynthVector& vector : vectors(shape)) written.num_parameters += vector.n;
  if (shards.size() > 1) {
    const boost::json::value index = {{"metadata", {{"total_size", written.num_bytes}}},
                                      {"weight_map", std::move(map)}};
    FLOTILLA_TRY_STATUS(write_text(options.folder + "/model.safetensors.index.json",
                                   boost::json::serialize(index) + "\n"));
  }
  FLOTILLA_TRY_STATUS(write_text(options.folder + "/config.json", config_text(shape)));
  return written;
}

}  // namespace flotilla::checkpoint
