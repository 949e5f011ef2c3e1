#include "bench/peers/shared_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace flotilla::peers {

void fail(const std::string& message) {
  std::fprintf(stderr, "peer_bench: %s\n", message.c_str());
  std::exit(1);
}

std::string find_file(const std::string& folder, const std::string& prefix) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(prefix)) return entry.path().string();
  }
  fail("no file " + prefix + "* in '" + folder + "'");
}

void SharedLibraries::open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) fail(dlerror());
  handles_.push_back(handle);
}

void* SharedLibraries::find(const char* name) const {
  for (auto handle = handles_.rbegin(); handle != handles_.rend(); ++handle) {
    if (void* symbol = dlsym(*handle, name)) return symbol;
  }
  fail(std::string("the peer has no function ") + name);
}

std::string choose_cpu_library(const std::string& folder, bool best) {
  const std::string haswell = folder + "/libggml-cpu-haswell.so";
  if (!best) return haswell;
  std::string chosen = haswell;
  int best_score = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("libggml-cpu-")) continue;
    void* handle = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    // 0: the processor lacks something that the library needs.
    const auto score = reinterpret_cast<int (*)()>(dlsym(handle, "ggml_backend_score"));
    if (score != nullptr && score() > best_score) {
      best_score = score();
      chosen = entry.path().string();
    }
    dlclose(handle);
  }
  return chosen;
}

}  // namespace flotilla::peers
