// What an operation throws when its device fails: a fault, a lost card, memory that ran out in a
// step. The backend is unusable afterwards; requests of the step fail, and the engine is rebuilt.
#pragma once

#include <stdexcept>
#include <string>

namespace flotilla::backend {

class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace flotilla::backend
