#include "flotilla/net/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace flotilla::net {

std::size_t raise_file_limit() {
  constexpr rlim_t kEnough = 1u << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur < wanted) {
    const rlimit raised{.rlim_cur = wanted, .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit.rlim_cur = wanted;
  }
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough));
}

ConnectionRoom connection_room(std::size_t files, std::size_t wanted) {
  constexpr std::size_t kSpareFiles = 128;  // models, database, links
  const std::size_t room = files > 2 * kSpareFiles ? files - kSpareFiles : files / 2;
  return {.connections = std::min(room, wanted), .is_tight = room < wanted / 4};
}

}  // namespace flotilla::net
