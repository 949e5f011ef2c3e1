#include "flotilla/backend/cuda/card_use.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace flotilla::backend::cuda {
namespace {

struct Card {
  int num_uses = 0;
  bool lost = false;
  std::mutex turn = {};  // addresses in a map stay
};
struct Cards {
  std::mutex mutex;
  std::map<int, Card> by_number;  // guarded by mutex
};
Cards& cards() {
  static Cards all;
  return all;
}

}  // namespace

Result<CardUse> CardUse::take(int device) {
  const std::lock_guard lock(cards().mutex);
  Card& card = cards().by_number[device];
  if (card.lost && card.num_uses > 0) {
    return Error{ErrorCode::kUnavailable, "CUDA device " + std::to_string(device) +
                                              " has failed; " + std::to_string(card.num_uses) +
                                              " models have not let go of it yet"};
  }
  if (card.lost) {
    (void)cudaSetDevice(device);
    (void)cudaDeviceReset();
    (void)cudaGetLastError();
    card.lost = false;
  }
  ++card.num_uses;
  return CardUse(device);
}

CardUse::CardUse(CardUse&& other) noexcept : device_(std::exchange(other.device_, -1)) {}

CardUse& CardUse::operator=(CardUse&& other) noexcept {
  std::swap(device_, other.device_);
  return *this;
}

CardUse::~CardUse() {
  if (device_ < 0) return;
  const std::lock_guard lock(cards().mutex);
  --cards().by_number[device_].num_uses;
}

std::unique_lock<std::mutex> CardUse::turn() const {
  Card* card = nullptr;
  {
    const std::lock_guard lock(cards().mutex);
    card = &cards().by_number[device_];
    if (card->num_uses < 2) return {};
  }
  return std::unique_lock(card->turn);
}

void CardUse::mark_lost() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) (void)cudaGetLastError();
  const std::lock_guard lock(cards().mutex);
  cards().by_number[device].lost = true;
}

}  // namespace flotilla::backend::cuda
