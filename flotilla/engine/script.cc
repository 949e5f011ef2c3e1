#include "flotilla/engine/script.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <span>
#include <utility>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"
#include "flotilla/engine/digest.h"
#include "flotilla/json/json.h"

namespace flotilla::engine {
namespace {

namespace bj = boost::json;
using std::chrono::microseconds;

constexpr std::size_t kMaxScriptBytes = 64u << 20;
constexpr std::size_t kMaxSteps = 1'000'000;

// The control tokens that a step's plain string is cut at.
constexpr std::array<std::string_view, 10> kGemma4Markers{
    "<|channel>",       "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", "<|\"|>",     "<|turn>",      "<turn|>",      "<|think|>"};

Error bad(std::string where, std::string what) {
  std::string message = where.empty() ? what : where + ": " + what;
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(where)};
}

Status check_keys(const bj::value& value, std::string_view where,
                  std::initializer_list<std::string_view> known) {
  if (!value.is_object()) return bad(std::string(where), "must be an object");
  for (const auto& member : value.get_object()) {
    const std::string_view key = member.key();
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string what = "unknown key '" + std::string(key) + "'";
    const std::vector<std::string> names(known.begin(), known.end());
    if (auto near = nearest_name(key, names)) what += "; did you mean '" + *near + "'?";
    return bad(std::string(where), std::move(what));
  }
  return ok_status();
}

Status parse_failure(const bj::value& value, const std::string& where, Error& error) {
  error = {ErrorCode::kInternal, "the script says so"};
  std::string code;
  if (value.is_string()) {
    code = value.get_string();
  } else {
    FLOTILLA_TRY_STATUS(check_keys(value, where, {"code", "message", "param"}));
    FLOTILLA_TRY(code, json::require_string(value, "code", where));
    FLOTILLA_TRY(auto message, json::get_string(value, "message", where));
    FLOTILLA_TRY(auto param, json::get_string(value, "param", where));
    if (message) error.message = *message;
    if (param) error.param = *param;
  }
  error.code = error_code_from_string(code);
  if (to_string(error.code) != code) return bad(where, "unknown error code '" + code + "'");
  return ok_status();
}

class StepParser {
 public:
  StepParser(chat::OutputSyntax syntax, microseconds delay, std::vector<ScriptStep>& out)
      : syntax_(syntax), delay_(delay), out_(out) {}

  Status parse_list(const bj::value& value, const std::string& where, int depth) {
    if (!value.is_array()) return bad(where, "must be an array");
    if (depth > 8) return bad(where, "'repeat' is nested more than 8 deep");
    for (std::size_t i = 0; i < value.get_array().size(); ++i) {
      const std::string path = where + "[" + std::to_string(i) + "]";
      FLOTILLA_TRY_STATUS(parse_step(value.get_array()[i], path, depth));
    }
    return ok_status();
  }

 private:
  Status parse_step(const bj::value& value, const std::string& where, int depth) {
    if (value.is_string()) return add_raw(std::string(value.get_string()), delay_, where);
    FLOTILLA_TRY_STATUS(
        check_keys(value, where,
                   {"text", "raw", "words", "bytes", "special", "id", "logprob", "delay_ms",
                    "wait_ms", "end", "hang", "fail", "nan", "echo", "repeat", "steps"}));
    FLOTILLA_TRY(const microseconds delay, parse_ms(value, "delay_ms", where, delay_));
    ScriptStep step;
    step.delay = delay;
    FLOTILLA_TRY(const auto id, json::get_int(value, "id", 0, 2147483647, where));
    if (id) step.id = static_cast<TokenId>(*id);
    FLOTILLA_TRY(const auto logprob, json::get_double(value, "logprob", -9999, 0, where));
    if (logprob) step.logprob = *logprob;

    if (json::find(value, "repeat") != nullptr) return add_repeat(value, where, depth);
    FLOTILLA_TRY(const auto raw, json::get_string(value, "raw", where));
    if (raw) return add_raw(*raw, delay, where);
    FLOTILLA_TRY(const auto words, json::get_string(value, "words", where));
    if (words) return add_words(*words, delay, where);
    FLOTILLA_TRY(const auto special, json::get_string(value, "special", where));
    if (special) {
      step.special = true;
      step.bytes = *special;
      return add(std::move(step), where);
    }
    FLOTILLA_TRY(const auto text, json::get_string(value, "text", where));
    FLOTILLA_TRY(const auto hex, json::get_string(value, "bytes", where));
    if (hex) {
      std::string digits = *hex;
      std::erase(digits, ' ');
      const auto bytes = from_hex(digits);
      if (!bytes) return bad(where + ".bytes", "must be hexadecimal digits");
      step.bytes.assign(bytes->begin(), bytes->end());
      return add(std::move(step), where);
    }
    if (text) {
      step.bytes = *text;
      return add(std::move(step), where);
    }
    return parse_order(value, std::move(step), where);
  }

  Status parse_order(const bj::value& value, ScriptStep step, const std::string& where) {
    FLOTILLA_TRY(const auto end, json::get_bool(value, "end", where));
    FLOTILLA_TRY(const auto hang, json::get_bool(value, "hang", where));
    FLOTILLA_TRY(const auto nan, json::get_bool(value, "nan", where));
    FLOTILLA_TRY(const auto echo, json::get_string(value, "echo", where));
    if (json::find(value, "wait_ms") != nullptr) {
      FLOTILLA_TRY(step.delay, parse_ms(value, "wait_ms", where, microseconds{0}));
      step.kind = ScriptStep::Kind::kWait;
    } else if (const bj::value* fail = json::find(value, "fail")) {
      FLOTILLA_TRY_STATUS(parse_failure(*fail, where + ".fail", step.error));
      step.kind = ScriptStep::Kind::kFail;
    } else if (nan.value_or(false)) {
      step.error = {ErrorCode::kModelFault, "the logits contain NaN"};
      step.kind = ScriptStep::Kind::kFail;
    } else if (hang.value_or(false)) {
      step.kind = ScriptStep::Kind::kHang;
    } else if (end.value_or(false)) {
      step.kind = ScriptStep::Kind::kEnd;
      step.special = true;
      step.bytes = "<end>";
    } else if (echo) {
      step.kind = ScriptStep::Kind::kEcho;
      if (*echo == "seed") {
        step.echo = ScriptStep::Echo::kSeed;
      } else if (*echo == "choice") {
        step.echo = ScriptStep::Echo::kChoice;
      } else if (*echo == "user") {
        step.echo = ScriptStep::Echo::kUser;
      } else if (*echo == "prompt_tokens") {
        step.echo = ScriptStep::Echo::kPromptTokens;
      } else {
        return bad(where + ".echo", "must be seed, choice, user or prompt_tokens");
      }
    } else if (step.id) {
      step.bytes.clear();  // a token without text
    } else {
      return bad(where, "says nothing to do");
    }
    return add(std::move(step), where);
  }

  Status add_repeat(const bj::value& value, const std::string& where, int depth) {
    FLOTILLA_TRY(
        const std::int64_t times,
        json::require_int(value, "repeat", 0, static_cast<std::int64_t>(kMaxSteps), where));
    const bj::value* steps = json::find(value, "steps");
    if (steps == nullptr) return bad(where, "'repeat' needs 'steps'");
    for (std::int64_t i = 0; i < times; ++i) {
      FLOTILLA_TRY_STATUS(parse_list(*steps, where + ".steps", depth + 1));
    }
    return ok_status();
  }

  // One token per control marker and one for each text between them.
  Status add_raw(std::string_view text, microseconds delay, const std::string& where) {
    while (!text.empty()) {
      std::size_t begin = std::string_view::npos;
      std::string_view found;
      if (syntax_ == chat::OutputSyntax::kGemma4) {
        for (const std::string_view marker : kGemma4Markers) {
          const std::size_t at = text.find(marker);
          if (at < begin) {
            begin = at;
            found = marker;
          }
        }
      }
      const std::string_view plain = text.substr(0, begin);
      if (!plain.empty()) {
        FLOTILLA_TRY_STATUS(add({.delay = delay, .bytes = std::string(plain)}, where));
      }
      if (found.empty()) break;
      FLOTILLA_TRY_STATUS(
          add({.delay = delay, .bytes = std::string(found), .special = true}, where));
      text.remove_prefix(begin + found.size());
    }
    return ok_status();
  }

  // One token per word, each with the blanks before it.
  Status add_words(std::string_view text, microseconds delay, const std::string& where) {
    while (!text.empty()) {
      const std::size_t word = text.find_first_not_of(" \n\t");
      const std::size_t end =
          word == std::string_view::npos ? text.size() : text.find_first_of(" \n\t", word);
      const std::string_view piece = text.substr(0, end);
      FLOTILLA_TRY_STATUS(add({.delay = delay, .bytes = std::string(piece)}, where));
      text.remove_prefix(piece.size());
    }
    return ok_status();
  }

  Status add(ScriptStep step, const std::string& where) {
    if (out_.size() >= kMaxSteps) {
      return bad(where, "the rule has more than " + std::to_string(kMaxSteps) + " steps");
    }
    out_.push_back(std::move(step));
    return ok_status();
  }

 public:
  static Result<microseconds> parse_ms(const bj::value& value, std::string_view key,
                                       const std::string& where, microseconds fallback) {
    FLOTILLA_TRY(const auto ms, json::get_double(value, key, 0, 86'400'000, where));
    if (!ms) return fallback;
    return microseconds(static_cast<std::int64_t>(std::llround(*ms * 1000)));
  }

 private:
  chat::OutputSyntax syntax_;
  microseconds delay_;
  std::vector<ScriptStep>& out_;
};

Status parse_match(const bj::value& value, const std::string& where, ScriptRule& rule) {
  FLOTILLA_TRY_STATUS(check_keys(value, where, {"model", "user", "prompt", "choice", "times"}));
  FLOTILLA_TRY(rule.model, json::get_string(value, "model", where));
  FLOTILLA_TRY(rule.user, json::get_string(value, "user", where));
  FLOTILLA_TRY(rule.prompt, json::get_string(value, "prompt", where));
  FLOTILLA_TRY(rule.choice, json::get_int(value, "choice", 0, 1'000'000, where));
  FLOTILLA_TRY(rule.times, json::get_int(value, "times", 0, 1'000'000'000, where));
  return ok_status();
}

Result<ScriptRule> parse_rule(const bj::value& value, const std::string& where,
                              chat::OutputSyntax syntax) {
  FLOTILLA_TRY_STATUS(check_keys(
      value, where,
      {"match", "refuse", "prompt_suffix", "delay_ms", "start_ms", "loop", "finish", "steps"}));
  ScriptRule rule;
  if (const bj::value* match = json::find(value, "match")) {
    FLOTILLA_TRY_STATUS(parse_match(*match, where + ".match", rule));
  }
  if (const bj::value* refuse = json::find(value, "refuse")) {
    FLOTILLA_TRY_STATUS(parse_failure(*refuse, where + ".refuse", rule.refuse.emplace()));
  }
  FLOTILLA_TRY(const auto suffix, json::get_string(value, "prompt_suffix", where));
  rule.prompt_suffix = suffix.value_or("");
  FLOTILLA_TRY(const auto loop, json::get_bool(value, "loop", where));
  rule.loop = loop.value_or(false);
  FLOTILLA_TRY(const auto finish, json::get_string(value, "finish", where));
  if (finish && *finish == "length") {
    rule.finish = FinishReason::kLength;
  } else if (finish && *finish != "stop") {
    return bad(where + ".finish", "must be stop or length");
  }
  FLOTILLA_TRY(const microseconds start,
               StepParser::parse_ms(value, "start_ms", where, microseconds{0}));
  if (start.count() > 0) {
    rule.steps.push_back({.kind = ScriptStep::Kind::kWait, .delay = start});
  }
  FLOTILLA_TRY(const microseconds delay,
               StepParser::parse_ms(value, "delay_ms", where, microseconds{0}));
  if (const bj::value* steps = json::find(value, "steps")) {
    StepParser parser(syntax, delay, rule.steps);
    FLOTILLA_TRY_STATUS(parser.parse_list(*steps, where + ".steps", 0));
  }
  const bool emits = std::any_of(rule.steps.begin(), rule.steps.end(), [](const ScriptStep& s) {
    return s.kind != ScriptStep::Kind::kWait;
  });
  if (rule.loop && !emits) return bad(where + ".loop", "needs a step that emits something");
  return rule;
}

Status parse_models(const bj::value& root, Script& script) {
  const bj::value* models = json::find(root, "models");
  FLOTILLA_TRY(const auto model, json::get_string(root, "model"));
  if (model) script.models = {*model};
  if (models == nullptr) return ok_status();
  if (model) return bad("models", "give 'model' or 'models', not both");
  if (!models->is_array() || models->get_array().empty()) {
    return bad("models", "must be an array of names");
  }
  script.models.clear();
  for (const bj::value& name : models->get_array()) {
    if (!name.is_string() || name.get_string().empty()) {
      return bad("models", "must be an array of names");
    }
    script.models.emplace_back(name.get_string());
  }
  return ok_status();
}

}  // namespace

Result<Script> parse_script(std::string_view text) {
  FLOTILLA_TRY(const bj::value root, json::parse(text));
  FLOTILLA_TRY_STATUS(check_keys(
      root, "",
      {"model", "models", "context_length", "max_concurrent", "max_waiting", "syntax", "rules"}));
  Script script;
  script.digest = digest_of_text(text);
  FLOTILLA_TRY_STATUS(parse_models(root, script));
  FLOTILLA_TRY(const auto context, json::get_int(root, "context_length", 2, 1'000'000'000));
  FLOTILLA_TRY(const auto concurrent, json::get_int(root, "max_concurrent", 1, 1'000'000));
  FLOTILLA_TRY(const auto waiting, json::get_int(root, "max_waiting", 0, 1'000'000));
  script.context_length = context.value_or(script.context_length);
  script.max_concurrent = concurrent.value_or(script.max_concurrent);
  script.max_waiting = waiting.value_or(script.max_waiting);
  FLOTILLA_TRY(const auto syntax, json::get_string(root, "syntax"));
  if (syntax && *syntax == "plain") {
    script.syntax = chat::OutputSyntax::kPlain;
  } else if (syntax && *syntax != "gemma4") {
    return bad("syntax", "must be gemma4 or plain");
  }
  const bj::value* rules = json::find(root, "rules");
  if (rules == nullptr || !rules->is_array()) return bad("rules", "must be an array");
  for (std::size_t i = 0; i < rules->get_array().size(); ++i) {
    const std::string where = "rules[" + std::to_string(i) + "]";
    FLOTILLA_TRY(ScriptRule rule, parse_rule(rules->get_array()[i], where, script.syntax));
    script.rules.push_back(std::move(rule));
  }
  return script;
}

Result<Script> load_script(const std::string& path) {
  FLOTILLA_TRY(const std::string text, read_file(path, kMaxScriptBytes));
  Result<Script> script = parse_script(text);
  if (!script.ok()) {
    Error error = std::move(script).error();
    error.message = "script '" + path + "': " + error.message;
    return error;
  }
  return script;
}

TokenId scripted_token_id(std::string_view bytes, bool special) {
  std::uint32_t hash = special ? 0x9e3779b9u : 0x811c9dc5u;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x01000193u;
  }
  return static_cast<TokenId>(hash & 0x3fffffffu);
}

}  // namespace flotilla::engine
