#include "bench/peers/ggml_peer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/peers/shared_library.h"
#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::peers {
namespace {

// The parts of ggml's interface that are used, declared from its documentation.
struct InitParams {
  std::size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};
constexpr int kF32 = 0, kQ4_0 = 2;
constexpr std::int64_t kBlock = 32, kBlockBytes = 18;

struct Weight {
  void* tensor;
  std::int64_t n, k;
};

void be_silent(int, const char*, void*) {}

}  // namespace

struct GgmlPeer::State {
  SharedLibraries libraries;
  std::string cpu_library;
  void* backend = nullptr;
  bool repacked = false;
  std::vector<Weight> weights;
  std::map<std::int64_t, void*> graphs;
  int (*compute)(void*, void*) = nullptr;

  void set(void* tensor, const void* data, std::size_t bytes) const {
    libraries.get<void(void*, const void*, std::size_t, std::size_t)>("ggml_backend_tensor_set")(
        tensor, data, 0, bytes);
  }
  void* new_2d(void* context, int type, std::int64_t k, std::int64_t n) const {
    return libraries.get<void*(void*, int, std::int64_t, std::int64_t)>("ggml_new_tensor_2d")(
        context, type, k, n);
  }
  void* new_context(std::size_t bytes) const {
    return libraries.get<void*(InitParams)>("ggml_init")({bytes, nullptr, true});
  }
};

GgmlPeer::GgmlPeer(const std::string& folder, const std::string& cpu_library,
                   const ModelShape& shape, int num_threads)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.cpu_library = cpu_library;
  s.libraries.open(find_file(folder, "libggml-base"));
  s.libraries.open(find_file(folder, "libggml."));
  using Log = void (*)(int, const char*, void*);
  s.libraries.get<void(Log, void*)>("ggml_log_set")(be_silent, nullptr);
  void* registry = s.libraries.get<void*(const char*)>("ggml_backend_load")(cpu_library.c_str());
  if (registry == nullptr) fail("cannot load " + cpu_library);
  void* device =
      s.libraries.get<void*(void*, std::size_t)>("ggml_backend_reg_dev_get")(registry, 0);
  s.backend = s.libraries.get<void*(void*, const char*)>("ggml_backend_dev_init")(device, nullptr);
  const auto procedure =
      s.libraries.get<void*(void*, const char*)>("ggml_backend_reg_get_proc_address");
  // No lasting thread pool: its idle threads poll and would disturb what is measured next. The
  // backend starts threads for every graph, that is once per step of 20 ms and more.
  reinterpret_cast<void (*)(void*, int)>(procedure(registry, "ggml_backend_set_n_threads"))(
      s.backend, num_threads);
  s.compute = s.libraries.get<int(void*, void*)>("ggml_backend_graph_compute");

  void* buffer_type = s.libraries.get<void*(void*)>("ggml_backend_dev_buffer_type")(device);
  if (void* extra = procedure(registry, "ggml_backend_dev_get_extra_bufts")) {
    for (void** type = reinterpret_cast<void** (*)(void*)>(extra)(device);
         type != nullptr && *type != nullptr; ++type) {
      const std::string name = s.libraries.get<const char*(void*)>("ggml_backend_buft_name")(*type);
      if (name.find("REPACK") == std::string::npos) continue;
      buffer_type = *type;
      s.repacked = true;
    }
  }
  void* context = s.new_context(std::size_t{4} << 20);
  std::int64_t largest = 0;
  for (const LinearGroup& group : shape.linears()) {
    for (const std::int64_t n : group.n) {
      s.weights.push_back({s.new_2d(context, kQ4_0, group.k, n), n, group.k});
      largest = std::max(largest, n * group.k / kBlock * kBlockBytes);
    }
  }
  if (s.libraries.get<void*(void*, void*)>("ggml_backend_alloc_ctx_tensors_from_buft")(
          context, buffer_type) == nullptr) {
    fail("the peer cannot allocate its weights");
  }
  backend::FixedRandom random(5);
  std::vector<std::uint8_t> data(static_cast<std::size_t>(largest));
  for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(random.next());
  for (std::size_t i = 0; i < data.size(); i += kBlockBytes) {  // float16, about 0.0043
    data[i] = 0x66;
    data[i + 1] = 0x1c;
  }
  for (const Weight& w : s.weights) {
    s.set(w.tensor, data.data(), static_cast<std::size_t>(w.n * w.k / kBlock * kBlockBytes));
  }
}

GgmlPeer::~GgmlPeer() = default;  // the process ends soon after
bool GgmlPeer::is_repacked() const { return state_->repacked; }
std::string GgmlPeer::cpu_name() const {
  const std::string& path = state_->cpu_library;
  return path.substr(path.rfind('/') + 1);
}

void GgmlPeer::prepare(std::int64_t rows) {
  State& s = *state_;
  if (s.graphs.contains(rows)) return;
  void* context = s.new_context(std::size_t{8} << 20);
  const auto new_buffer = s.libraries.get<void*(void*, std::size_t)>("ggml_backend_alloc_buffer");
  const auto base = s.libraries.get<void*(void*)>("ggml_backend_buffer_get_base");
  const auto place = s.libraries.get<int(void*, void*, void*)>("ggml_backend_tensor_alloc");
  const auto product = s.libraries.get<void*(void*, void*, void*)>("ggml_mul_mat");
  const auto expand = s.libraries.get<void(void*, void*)>("ggml_build_forward_expand");
  const auto bytes_of = [&](std::int64_t columns) {
    return static_cast<std::size_t>(columns * rows) * sizeof(float);
  };
  std::int64_t widest = 0;
  for (const Weight& w : s.weights) widest = std::max(widest, w.n);
  // All results share one place, as they do after llama.cpp's graph allocator.
  void* out = new_buffer(s.backend, bytes_of(widest) + 4096);
  void* graph = s.libraries.get<void*(void*, std::size_t, bool)>("ggml_new_graph_custom")(
      context, 4096, false);
  std::map<std::int64_t, void*> inputs;  // by k
  for (const Weight& w : s.weights) {
    void*& x = inputs[w.k];
    if (x == nullptr) {
      x = s.new_2d(context, kF32, w.k, rows);
      void* buffer = new_buffer(s.backend, bytes_of(w.k) + 4096);
      place(buffer, x, base(buffer));
      const tensor::Tensor values = backend::fixed_activations({rows, w.k}, 9);
      s.set(x, values.data<float>(), bytes_of(w.k));
    }
    void* y = product(context, w.tensor, x);
    place(out, y, base(out));
    expand(graph, y);
  }
  s.graphs[rows] = graph;
}

void GgmlPeer::run(std::int64_t rows) {
  if (state_->compute(state_->backend, state_->graphs.at(rows)) != 0) fail("the peer failed");
}

}  // namespace flotilla::peers
