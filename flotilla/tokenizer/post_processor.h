// The post-processor of tokenizer.json: puts special tokens around the ids of a text.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::tokenizer {

class PostProcessor {
 public:
  static Result<PostProcessor> parse(const boost::json::value* value);
  // Without special tokens only the text's own ids are arranged.
  std::vector<TokenId> run(std::vector<TokenId> ids, bool add_special_tokens) const;

 private:
  struct Part {
    bool is_text = false;
    std::vector<TokenId> ids;
  };
  using Template = std::vector<Part>;
  static Status parse_into(const boost::json::value& value, const std::string& where, int depth,
                           std::vector<Template>& templates);
  static Result<Template> parse_template(const boost::json::value& value, const std::string& where);

  std::vector<Template> templates_;  // applied one after the other
};

}  // namespace flotilla::tokenizer
