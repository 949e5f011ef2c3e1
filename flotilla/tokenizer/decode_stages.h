// The steps of a running decoder, one class for each kind. Only for decoder.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flotilla/tokenizer/decoder.h"

namespace flotilla::tokenizer {

// The last stage: appends to `out`, which must outlive it.
std::unique_ptr<DecodeStage> make_append_stage(std::string& out);

// Puts the stage for `step` before the last of `stages`. `in_parts`: a step before has joined all
// tokens to one, which comes in parts. `step` must outlive the stage.
void add_stage(const Decoder::Step& step, bool in_parts,
               std::vector<std::unique_ptr<DecodeStage>>& stages);

}  // namespace flotilla::tokenizer
