#include "flotilla/tokenizer/decoder.h"

#include <boost/json.hpp>

#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/decode_stages.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;

namespace {
// What becomes of `text` when another token follows.
std::string run_one(const Decoder::Step& step, std::string_view text) {
  std::string out;
  std::vector<std::unique_ptr<DecodeStage>> stages;
  stages.push_back(make_append_stage(out));
  add_stage(step, /*in_parts=*/false, stages);
  stages.back()->push(text);
  stages.back()->push("");
  return out;
}
}  // namespace

Decoder::Stream::Stream(const Decoder& decoder, std::string& out) {
  // After these steps there is one joined token, which later stages get in parts.
  std::vector<bool> in_parts;
  bool fused = false;
  for (const Step& step : decoder.steps_) {
    in_parts.push_back(fused);
    fused = fused || std::holds_alternative<Fuse>(step) || std::holds_alternative<ByteLevel>(step);
  }
  stages_.push_back(make_append_stage(out));
  for (std::size_t i = decoder.steps_.size(); i-- > 0;) {
    add_stage(decoder.steps_[i], in_parts[i], stages_);
  }
}
Decoder::Stream::~Stream() = default;
Decoder::Stream::Stream(Stream&&) noexcept = default;
Decoder::Stream& Decoder::Stream::operator=(Stream&&) noexcept = default;
void Decoder::Stream::push(std::string_view token) { stages_.back()->push(token); }
void Decoder::Stream::finish() { stages_.back()->finish(); }

std::string Decoder::middle_bytes(std::string_view token) const {
  std::string text(token);
  for (const Step& any : steps_) {
    if (std::holds_alternative<ByteLevel>(any)) {
      std::string bytes;
      return append_byte_level_bytes(bytes, text) ? bytes : text;
    }
    if (std::holds_alternative<ByteFallback>(any)) {
      if (const auto byte = byte_fallback_byte(text))
        return std::string(1, static_cast<char>(*byte));
    } else if (std::holds_alternative<Replace>(any) || std::holds_alternative<BpeSuffix>(any)) {
      text = run_one(any, text);
    } else if (const auto* meta = std::get_if<Metaspace>(&any)) {
      text = run_one(Metaspace{meta->replacement, /*drops_first=*/false}, text);
    } else if (std::holds_alternative<Fuse>(any)) {
      break;  // what follows looks at the ends of the whole text
    }
  }
  return text;
}

Status Decoder::parse_into(const bj::value& value, const std::string& where, int depth,
                           std::vector<Step>& steps) {
  if (depth > kMaxNesting)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: " + where + " is nested too deep"};
  FLOTILLA_TRY(const std::string type, component_type(value, where));
  if (type == "Sequence") {
    FLOTILLA_TRY(const bj::array* parts, read_components(value, "decoders", where));
    for (const bj::value& part : *parts)
      FLOTILLA_TRY_STATUS(parse_into(part, where + ".decoders", depth + 1, steps));
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(Fuse{});
  } else if (type == "Replace") {
    FLOTILLA_TRY(Matcher pattern, read_pattern(value, where));
    FLOTILLA_TRY(std::string content, json::require_string(value, "content", where));
    steps.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "content", where));
    FLOTILLA_TRY(const auto start, json::require_int(value, "start", 0, 1 << 20, where));
    FLOTILLA_TRY(const auto stop, json::require_int(value, "stop", 0, 1 << 20, where));
    Strip step{.content = {},
               .start = static_cast<std::size_t>(start),
               .stop = static_cast<std::size_t>(stop)};
    append_utf8(step.content, c);
    steps.emplace_back(std::move(step));
  } else if (type == "Metaspace") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "replacement", where));
    FLOTILLA_TRY(const auto scheme, json::get_string(value, "prepend_scheme", where));
    FLOTILLA_TRY(const auto prefix, json::get_bool(value, "add_prefix_space", where));
    steps.emplace_back(Metaspace{c, prefix.value_or(true) && scheme.value_or("always") != "never"});
  } else if (type == "BPEDecoder") {
    FLOTILLA_TRY(std::string suffix, json::require_string(value, "suffix", where));
    steps.emplace_back(BpeSuffix{std::move(suffix)});
  } else {
    return unsupported_component(where, type);
  }
  return ok_status();
}

Result<Decoder> Decoder::parse(const bj::value* value) {
  Decoder result;
  if (value) {
    FLOTILLA_TRY_STATUS(parse_into(*value, "decoder", 0, result.steps_));
  } else {
    result.steps_.emplace_back(Join{});
  }
  return result;
}

}  // namespace flotilla::tokenizer
