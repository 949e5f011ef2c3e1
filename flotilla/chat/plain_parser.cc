#include "flotilla/chat/plain_parser.h"

#include <utility>

namespace flotilla::chat {

namespace {

class PlainParser final : public OutputParser {
 public:
  // Control tokens are no text.
  std::vector<OutputDelta> push(std::string_view text, std::string_view) override {
    if (text.empty()) return {};
    return {{Channel::kContent, std::string(text)}};
  }
  std::vector<OutputDelta> finish() override { return {}; }
  int num_calls() const override { return 0; }
  bool inside_call() const override { return false; }
};

}  // namespace

std::unique_ptr<OutputParser> make_plain_parser() { return std::make_unique<PlainParser>(); }

}  // namespace flotilla::chat
