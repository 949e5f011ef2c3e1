// Whether this machine's kernels compute what they should, looked at once per binary and processor.
#pragma once

#include <string>

#include "flotilla/base/result.h"

namespace flotilla::apps {

// Runs backend::check_numerics() and logs the id; from the second start of the same program on the
// same processor on, a file in `state_dir` answers (it is only a cache: unreadable or foreign
// content means that the check is run). A machine that fails must not serve.
Status check_kernels_at_start(int threads, const std::string& state_dir);
// The same for a card, every time: its matrix instructions must agree as well.
Status check_card_at_start(int device);

}  // namespace flotilla::apps
