// The bytes are a program: each picks a control token, a snippet of the notation, or a cut. Read
// whole and read in pieces must give the same; calls that ended must be JSON.
#include <array>
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/check.h"
#include "flotilla/chat/output_parser.h"

namespace {

using namespace flotilla::chat;

struct Piece {
  std::string text;
  bool is_special;
};

struct Outcome {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(const std::vector<Piece>& pieces, std::string_view tail) {
  const auto parser = make_output_parser(OutputSyntax::kGemma4, tail);
  Outcome out;
  const auto take = [&out](const std::vector<OutputDelta>& deltas) {
    for (const OutputDelta& delta : deltas) {
      if (delta.channel == Channel::kContent) {
        out.content += delta.text;
      } else if (delta.channel == Channel::kReasoning) {
        out.reasoning += delta.text;
      } else {
        if (!delta.call_name.empty()) out.calls.emplace_back(delta.call_name, "");
        FLOTILLA_CHECK(delta.call_index == static_cast<int>(out.calls.size()) - 1,
                       "wrong call index");
        out.calls.back().second += delta.text;
      }
    }
  };
  for (const Piece& piece : pieces) {
    take(piece.is_special ? parser->push({}, piece.text) : parser->push(piece.text, {}));
  }
  take(parser->finish());
  FLOTILLA_CHECK(parser->num_calls() == static_cast<int>(out.calls.size()),
                 "wrong number of calls");
  return out;
}

constexpr std::array<std::string_view, 10> kSpecials = {
    "<|channel>", "<channel|>", "<|tool_call>",     "<tool_call|>", "<|\"|>",
    "<|\"|>",     "<turn|>",    "<|tool_response>", "<bos>",        "<|tool_call>"};
constexpr std::array<std::string_view, 20> kSnippets = {
    "call:f{", "thought\n", "a:", "{",  "}", "[", "]",  ",",     "b:1", "true",
    "None",    "\"",        "'",  "\\", "(", ")", "\n", "call:", ",k:", "x y"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view tail =
      data[0] & 2 ? "<|turn>model\n<|channel>thought\n" : "<|turn>model\n";
  std::vector<Piece> cut;
  std::vector<Piece> whole;
  bool breaks = true;
  for (std::size_t i = 1; i < size; ++i) {
    const std::uint8_t byte = data[i];
    if (byte == 0xff) {
      breaks = true;
      continue;
    }
    const bool is_special = byte >= 0x80 && byte < 0xa0;
    std::string text(1, static_cast<char>(byte));
    if (is_special) text = kSpecials[byte % kSpecials.size()];
    if (byte >= 0xa0 && byte < 0xf0) text = kSnippets[byte % kSnippets.size()];
    if (is_special || breaks || cut.back().is_special) {
      cut.push_back({text, is_special});
    } else {
      cut.back().text += text;
    }
    breaks = false;
    if (is_special || whole.empty() || whole.back().is_special) {
      whole.push_back({text, is_special});
    } else {
      whole.back().text += text;
    }
  }
  const Outcome outcome = parse(cut, tail);
  FLOTILLA_CHECK(outcome == parse(whole, tail), "the cut matters");
  for (std::size_t i = 0; i < outcome.calls.size(); ++i) {
    boost::json::error_code error;
    boost::json::parse_options options;
    options.allow_invalid_utf8 = true;
    options.max_depth = 64;
    boost::json::parse(outcome.calls[i].second, error, {}, options);
    // The output may have ended inside the last call: then its arguments are the start of some
    // JSON.
    const bool unfinished =
        i + 1 == outcome.calls.size() && error == boost::json::error::incomplete;
    FLOTILLA_CHECK(!error || unfinished, outcome.calls[i].second);
  }
  return 0;
}
