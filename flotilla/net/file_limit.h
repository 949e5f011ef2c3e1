// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace flotilla::net {

// Raises the soft limit as far as the hard one allows, at most to a million, and returns what it is
// then. At start; servers with few descriptors make their clients wait.
std::size_t raise_file_limit();

}  // namespace flotilla::net
