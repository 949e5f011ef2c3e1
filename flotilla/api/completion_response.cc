#include "flotilla/api/completion_response.h"

#include <cmath>
#include <unordered_set>

#include "flotilla/api/json_text.h"
#include "flotilla/base/text.h"

namespace flotilla::api {
namespace {

void append_number(std::string& out, double logprob) {
  const bool representable = std::isfinite(logprob) && logprob > kLogprobFloor;
  append_json_number(out, representable ? logprob : kLogprobFloor);
}

// A token that is a part of a character has no text of its own: "bytes:\xf0\x9f", as OpenAI does.
std::string token_text(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

void append_top(std::string& out, const TokenLogprob& entry) {
  std::unordered_set<std::string> seen;  // keys of a JSON object; the likelier one of two stays
  out += '{';
  const auto add = [&](const TokenLogprob& item) {
    std::string text = token_text(item.bytes);
    if (seen.contains(text)) return;
    if (!seen.empty()) out += ',';
    append_json_string(out, text);
    out += ':';
    append_number(out, item.logprob);
    seen.insert(std::move(text));
  };
  for (const TokenLogprob& item : entry.top) add(item);
  add(entry);
  out += '}';
}

template <class Append>
void append_list(std::string& out, std::string_view name, std::span<const TokenLogprob> entries,
                 Append append) {
  append_json_string(out, name);
  out += ":[";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    append(entries[i]);
  }
  out += ']';
}

void append_logprobs(std::string& out, const CompletionPiece& piece) {
  out += '{';
  append_list(out, "tokens", piece.logprobs,
              [&](const TokenLogprob& entry) { append_json_string(out, token_text(entry.bytes)); });
  out += ',';
  append_list(out, "token_logprobs", piece.logprobs,
              [&](const TokenLogprob& entry) { append_number(out, entry.logprob); });
  out += ',';
  append_list(out, "top_logprobs", piece.logprobs,
              [&](const TokenLogprob& entry) { append_top(out, entry); });
  out += ',';
  std::int64_t offset = piece.text_offset;
  append_list(out, "text_offset", piece.logprobs, [&](const TokenLogprob& entry) {
    append_json_int(out, offset);
    offset += count_characters(entry.bytes);
  });
  out += '}';
}

void append_choice(std::string& out, const ResponseHead& head, const CompletionPiece& piece) {
  out += R"({"index":)";
  append_json_int(out, piece.index);
  out += R"(,"text":)";
  append_json_string(out, piece.text);
  out += R"(,"logprobs":)";
  if (head.logprobs) {
    append_logprobs(out, piece);
  } else {
    out += "null";
  }
  out += R"(,"finish_reason":)";
  if (piece.finish) {
    append_json_string(out, to_string(*piece.finish));
  } else {
    out += "null";
  }
  if (head.return_token_ids) {
    out += R"(,"token_ids":)";
    append_id_list(out, piece.token_ids);
  }
  out += '}';
}

}  // namespace

std::int64_t count_characters(std::string_view bytes) {
  std::int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string render_completion(const ResponseHead& head, std::span<const CompletionPiece> choices,
                              const Usage& usage) {
  std::string out;
  append_response_head(out, head, "text_completion");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, head, choices[i]);
  }
  out += R"(],"usage":)";
  append_usage_object(out, usage);
  out += '}';
  return out;
}

void append_completion_chunk(std::string& out, const ResponseHead& head,
                             const CompletionPiece& piece) {
  out += "data: ";
  append_response_head(out, head, "text_completion");
  append_choice(out, head, piece);
  out += head.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void append_completion_usage(std::string& out, const ResponseHead& head, const Usage& usage) {
  out += "data: ";
  append_response_head(out, head, "text_completion");
  out += R"(],"usage":)";
  append_usage_object(out, usage);
  out += "}\n\n";
}

}  // namespace flotilla::api
