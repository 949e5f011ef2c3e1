// The bodies of GET /v1/models and GET /v1/models/{id}, as OpenAI's clients read them and, with
// more members, as Anthropic's do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flotilla::api {

struct ModelInfo {
  std::string id;
  std::int64_t created = 0;  // unix seconds
  std::string owned_by = "flotilla";
  std::int64_t context_length = 0;             // 0: not known, left out
  std::vector<std::string> capabilities = {};  // as a catalog says; empty: left out
};

std::string render_model(const ModelInfo& model);
std::string render_model_list(std::span<const ModelInfo> models);

}  // namespace flotilla::api
