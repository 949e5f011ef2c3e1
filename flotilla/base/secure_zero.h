// Wipes memory that held somebody's data.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace flotilla {

// The compiler may not drop it, even when the memory is freed next.
inline void secure_zero(void* data, std::size_t bytes) {
  if (bytes == 0) return;
  std::memset(data, 0, bytes);
  asm volatile("" : : "r"(data) : "memory");
}

// Empties `values` and wipes all of its memory, which it keeps.
template <class T>
void secure_clear(std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  values.resize(values.capacity());
  secure_zero(static_cast<void*>(values.data()), values.size() * sizeof(T));
  values.clear();
}

}  // namespace flotilla
