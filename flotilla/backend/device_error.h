// What an operation throws when its device fails: a fault, memory that ran out in a step. The
// requests of the step fail. When the device is lost, so is everything on it: the engine is
// rebuilt.
#pragma once

#include <stdexcept>
#include <string>

namespace flotilla::backend {

class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& what, bool lost = false)
      : std::runtime_error(what), lost_(lost) {}
  // Every later operation on the device fails as well, until all its backends are gone.
  bool lost() const { return lost_; }

 private:
  bool lost_;
};

}  // namespace flotilla::backend
