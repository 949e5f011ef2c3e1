// Functions of libraries that are found at run time. Failures end the program with a message: it
// is a benchmark.
#pragma once

#include <string>
#include <vector>

namespace flotilla::peers {

[[noreturn]] void fail(const std::string& message);

// Path of the only file of the folder whose name begins with `prefix`.
std::string find_file(const std::string& folder, const std::string& prefix);

class SharedLibraries {
 public:
  void open(const std::string& path);
  // Looks in all that were opened, the last one first.
  void* find(const char* name) const;
  template <class Fn>
  Fn* get(const char* name) const {
    return reinterpret_cast<Fn*>(find(name));
  }

 private:
  std::vector<void*> handles_;
};

// The CPU library of ggml in `folder` that scores best on this processor, or "haswell" (AVX2 and
// FMA, nothing newer).
std::string choose_cpu_library(const std::string& folder, bool best);

}  // namespace flotilla::peers
