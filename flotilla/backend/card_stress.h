// A search for drift on a card at real sizes: every kernel of a 31B model, again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {

struct CardStress {
  int cases = 0;
  int rounds = 0;
  std::int64_t words = 0;  // 32-bit words compared
  // Operations whose bits changed from one round to another.
  std::vector<std::string> drifting = {};
  std::string digest;  // SHA-256 of all results, 64 hexadecimal digits
};
// Runs the operations of Gemma 4 31B on made-up weights, inputs and pages: products of 1 to 512
// rows, attention of decode and prefill steps, and what stands between them. All operations of a
// round follow each other as in a step; then every result is compared with the first time, on the
// card. Needs some 3 GB there. `progress` is told now and then how many rounds are done. Only for
// backends of cuda_device().
CardStress stress_card(Backend& backend, int rounds, const std::function<void(int)>& progress);

}  // namespace flotilla::backend
