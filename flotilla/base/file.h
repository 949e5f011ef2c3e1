// Reading small files whole.
#pragma once

#include <cstddef>
#include <string>

#include "flotilla/base/result.h"

namespace flotilla {

// Errors name the path: kNotFound (absent), kPermissionDenied, kTooLarge beyond `max_bytes`,
// kInvalidArgument (a folder), kDataLoss (the read failed).
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

}  // namespace flotilla
