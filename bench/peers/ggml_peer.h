// All linears of a shape as one ggml graph of q4_0 products.
#pragma once

#include <memory>
#include <string>

#include "bench/peers/shapes.h"

namespace flotilla::peers {

class GgmlPeer {
 public:
  // `folder` holds libggml-base.so and libggml*.so; `cpu_library` is one of its libggml-cpu-*.so.
  // The weights are in the repacked buffer type when the library offers one, as in llama.cpp.
  GgmlPeer(const std::string& folder, const std::string& cpu_library, const ModelShape& shape,
           int num_threads);
  ~GgmlPeer();

  bool is_repacked() const;
  std::string cpu_name() const;
  void prepare(std::int64_t rows);  // builds the graph
  void run(std::int64_t rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flotilla::peers
