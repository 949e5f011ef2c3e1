#include "flotilla/chat/output_parser.h"

#include "flotilla/chat/gemma4_parser.h"
#include "flotilla/chat/plain_parser.h"

namespace flotilla::chat {

namespace {

// One row for each syntax that can be recognised; a new family adds a file and a row.
struct SyntaxEntry {
  OutputSyntax syntax;
  std::vector<std::string_view> markers;  // all must occur in the template
  std::unique_ptr<OutputParser> (*make)(std::string_view prompt_tail);
};

const std::vector<SyntaxEntry>& syntax_table() {
  static const std::vector<SyntaxEntry> kTable = {
      {OutputSyntax::kGemma4, {"<|turn>", "<|channel>", "<|tool_call>"}, &make_gemma4_parser},
  };
  return kTable;
}

}  // namespace

OutputSyntax detect_output_syntax(std::string_view template_source) {
  for (const SyntaxEntry& entry : syntax_table()) {
    bool has_all = true;
    for (const std::string_view marker : entry.markers) {
      has_all = has_all && template_source.find(marker) != std::string_view::npos;
    }
    if (has_all) return entry.syntax;
  }
  return OutputSyntax::kPlain;
}

std::unique_ptr<OutputParser> make_output_parser(OutputSyntax syntax,
                                                 std::string_view prompt_tail) {
  for (const SyntaxEntry& entry : syntax_table()) {
    if (entry.syntax == syntax) return entry.make(prompt_tail);
  }
  return make_plain_parser();
}

}  // namespace flotilla::chat
