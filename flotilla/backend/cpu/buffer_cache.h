// Recycles host buffers: a step allocates the same few sizes again and again, and fresh pages from
// the system cost more than many operations.
#pragma once

#include <cstddef>
#include <memory>

#include "flotilla/tensor/tensor.h"

namespace flotilla::backend {

class BufferCache {
 public:
  // Keeps at most max_idle_bytes of buffers that nobody uses.
  explicit BufferCache(std::size_t max_idle_bytes);
  ~BufferCache();
  // Not initialised. May be released on any thread, also after the cache is gone.
  std::shared_ptr<tensor::Buffer> get(std::size_t bytes);
  std::size_t idle_bytes() const;

 private:
  struct State;
  class Lease;
  std::shared_ptr<State> state_;
};

}  // namespace flotilla::backend
