// The expected outputs of a reference folder.
#pragma once

#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::reference_check {

struct Prompt {
  std::string name;  // "p0"
  std::vector<TokenId> ids;
  std::vector<float> logits;  // [ids, vocab]
  std::vector<TokenId> greedy;
  std::vector<float> margins;  // of the two best logits at each greedy step
  std::vector<float> hidden;   // [layers + 1, ids, hidden]; may be empty
};

struct Expected {
  std::vector<Prompt> prompts;
  int num_picture_cases = 0;  // vN: not run here
};

// Reads <folder>/expected.safetensors; an error names what is missing or has the wrong shape.
Result<Expected> read_expected(const std::string& folder, std::int64_t vocab_size);

}  // namespace flotilla::reference_check
