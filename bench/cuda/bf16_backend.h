// The CPU backend with every result rounded to bf16 where the card rounds: what bf16 alone costs.
#pragma once

#include <memory>

#include "flotilla/backend/backend.h"

namespace flotilla::cuda_check {

std::unique_ptr<backend::Backend> make_bf16_backend();

}  // namespace flotilla::cuda_check
