// Why a node is, or is not, chosen for a model now. Core strand only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flotilla/coordinator/routing/router.h"

namespace flotilla::coordinator {

struct NodeExplanation {
  const ProviderRecord* provider = nullptr;
  bool chosen = false;  // the next job of this length would go there
  gates::Verdict verdict;
  Router::Expectation expected;  // empty where the node does not list the model
};

struct Explanation {
  std::int64_t prompt_tokens = 0;
  gates::OutlookOf outlook;
  std::vector<NodeExplanation> nodes;  // the chosen one, then by expected time, then the others
};

// For a job with a prompt of `prompt_tokens` and an answer of `max_tokens` (0: of usual length).
// `node`: of that name only; the counts are of all.
Explanation explain(ProviderRegistry& registry, const Router& router, const std::string& model,
                    std::int64_t prompt_tokens, std::int64_t max_tokens,
                    const std::optional<std::string>& node);

}  // namespace flotilla::coordinator
