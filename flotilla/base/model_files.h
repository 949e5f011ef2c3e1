// The files of a model's folder besides its weights. Whoever digests, publishes or fetches a model
// means these and no others.
#pragma once

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

}  // namespace flotilla
