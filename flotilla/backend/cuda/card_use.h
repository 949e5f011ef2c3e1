// Who uses a card, so that it can be taken up again after a fault: the runtime forgets the fault
// when everything on the card has been let go of and its context is made anew.
#pragma once

#include <mutex>

#include "flotilla/base/result.h"

namespace flotilla::backend::cuda {

// A backend's share in a card. Thread-safe.
class CardUse {
 public:
  // kUnavailable while others hold a card that was lost.
  static Result<CardUse> take(int device);
  CardUse() = default;
  CardUse(CardUse&& other) noexcept;
  CardUse& operator=(CardUse&& other) noexcept;
  ~CardUse();

  // While several backends use a card, one at a time may run kernels whose thread blocks wait for
  // each other: two of them side by side could keep each other from the card for ever. Empty when
  // this is the only backend.
  std::unique_lock<std::mutex> turn() const;

  // The context of the calling thread's card is of no more use.
  static void mark_lost();

 private:
  explicit CardUse(int device) : device_(device) {}
  int device_ = -1;
};

}  // namespace flotilla::backend::cuda
