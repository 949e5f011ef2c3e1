// What the model's makers recommend for generation, and where a completion ends.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

// From generation_config.json; absent fields are empty. do_sample = false becomes temperature 0.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int> top_k;
  std::optional<double> repetition_penalty;
  // The union of every source: config.json at the top and in text_config, generation_config.json,
  // and the eos_token of tokenizer_config.json where its id is declared there. Sorted, each once.
  std::vector<TokenId> eos_ids;
};

// `config` is the parsed config.json of `folder`. Missing files are fine; malformed ones are errors
// that name the file.
Result<GenerationDefaults> read_generation_defaults(const std::string& folder,
                                                    const boost::json::value& config);

}  // namespace flotilla::checkpoint
