// What people want to know about the models on a disk, without loading them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

struct ModelSummary {
  std::string name;  // of the folder
  std::string folder;
  std::string family;           // text_config.model_type, else model_type: "gemma4_text"; "" when
                                // config.json says none
  std::string architecture;     // first of "architectures"
  std::uint64_t num_bytes = 0;  // of the tensors
  std::size_t num_files = 0;    // weight files
  std::string quantization;     // "affine 4-bit, groups of 64"; "bfloat16"
  std::int64_t context_length = 0;  // 0: not stated
  std::string digest;               // hex; "" while not in the cache
  std::vector<std::string>
      problems;  // why it cannot be served, for people; empty: headers are sound
  bool ok() const { return problems.empty(); }
};

// The model in `folder`; damage is reported in `problems`. Reads headers only.
ModelSummary summarize_model(const std::string& folder);

// `root` itself when it is a model, else its sub-folders with a config.json, sorted by name; hidden
// folders are skipped. kNotFound when `root` is no folder.
Result<std::vector<ModelSummary>> scan_models(const std::string& root);

struct TensorRow {
  std::string name;             // without ".weight" for quantised modules
  std::string format;           // "affine 4-bit, groups of 64"; "BF16"
  std::string shape;            // logical
  std::uint64_t num_bytes = 0;  // with scales and biases
  std::string file;
};

struct ModelInspection {
  ModelSummary summary;
  std::vector<TensorRow> tensors;  // by name
  std::int64_t num_parameters = 0;
  std::vector<std::string>
      config;  // "hidden_size = 256": the scalar fields of text_config, or of the top
  std::vector<std::string> notes;  // disagreements between metadata and file
};

// An error when the checkpoint cannot be opened.
Result<ModelInspection> inspect_model(const std::string& folder);

}  // namespace flotilla::checkpoint
