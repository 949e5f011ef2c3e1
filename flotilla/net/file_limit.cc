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

}  // namespace flotilla::net
