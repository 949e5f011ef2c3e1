#include "bench/fleet/process_stat.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace flotilla::bench {

Result<ProcessStat> read_processes(const std::vector<int>& pids) {
  ProcessStat out;
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const int pid : pids) {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::ifstream stat(folder + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) {
      return Error{ErrorCode::kNotFound, "there is no process " + std::to_string(pid)};
    }
    std::istringstream rest(text.substr(name_end + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    std::uint64_t user = 0, system = 0;
    rest >> user >> system;
    out.cpu_seconds += static_cast<double>(user + system) / ticks;
    std::ifstream statm(folder + "/statm");
    std::uint64_t size = 0, resident = 0;
    statm >> size >> resident;
    out.resident_bytes += resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  return out;
}

Quantiles quantiles(std::vector<double>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    const auto i = static_cast<std::size_t>(q * static_cast<double>(values.size()));
    return values[std::min(i, values.size() - 1)];
  };
  return {at(0.5), at(0.9), at(0.99), at(0.999), values.back()};
}

}  // namespace flotilla::bench
