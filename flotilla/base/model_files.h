// The files of a model's folder besides its weights. Whoever digests, publishes or fetches a model
// means these and no others.
#pragma once

#include <string_view>

namespace flotilla {

inline constexpr const char* kModelSideFiles[] = {"config.json",
                                                  "generation_config.json",
                                                  "model.safetensors.index.json",
                                                  "tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "tokenizer.model",
                                                  "added_tokens.json",
                                                  "special_tokens_map.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "chat_template.jinja",
                                                  "chat_template.json",
                                                  "preprocessor_config.json",
                                                  "processor_config.json",
                                                  "video_preprocessor_config.json"};

inline bool is_model_file(std::string_view name) {
  if (name.ends_with(".safetensors") && !name.starts_with('.')) return true;
  for (const std::string_view known : kModelSideFiles) {
    if (name == known) return true;
  }
  return false;
}

}  // namespace flotilla
