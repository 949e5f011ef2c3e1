#include "flotilla/provider/hardware.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "flotilla/base/text.h"
#include "flotilla/gates/memory.h"

namespace flotilla::provider {

namespace {
// The rest of the first line of `path` that starts with `key`.
std::string line_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos)
      return std::string(trim_ascii(std::string_view(line).substr(colon + 1)));
  }
  return {};
}
// What the container may use at most; 0: not limited.
std::uint64_t cgroup_memory_bytes() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::uint64_t bytes = 0;
  return file >> bytes ? bytes : 0;  // "max": no number
}
}  // namespace

std::uint64_t available_memory_bytes() {
  const std::string value = line_value("/proc/meminfo", "MemAvailable");
  return std::strtoull(value.c_str(), nullptr, 10) * 1024;
}

protocol::HardwareInfo probe_hardware(std::uint32_t num_threads) {
  protocol::HardwareInfo info;
  info.cpu = line_value("/proc/cpuinfo", "model name").substr(0, protocol::kMaxName);
  info.num_threads =
      num_threads > 0 ? num_threads : std::max(1u, std::thread::hardware_concurrency());
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0) {
    info.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
    if (const std::uint64_t most = cgroup_memory_bytes(); most > 0) {
      info.memory_bytes = std::min(info.memory_bytes, most);
    }
    info.memory_cap_bytes = gates::usable_memory(info.memory_bytes);
  }
  return info;
}

}  // namespace flotilla::provider
