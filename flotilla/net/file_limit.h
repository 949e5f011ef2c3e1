// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace flotilla::net {

// Raises the soft limit as far as the hard one allows, at most to a million, and returns what it is
// then. At start; servers with few descriptors make their clients wait.
std::size_t raise_file_limit();

// How many of `wanted` connections a server takes with so many files, some of which it needs for
// other things; and whether that is too few for a server to be silent about it.
struct ConnectionRoom {
  std::size_t connections = 0;
  bool is_tight = false;
};
ConnectionRoom connection_room(std::size_t files, std::size_t wanted);

}  // namespace flotilla::net
