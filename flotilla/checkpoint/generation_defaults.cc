#include "flotilla/checkpoint/generation_defaults.h"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <charconv>
#include <limits>
#include <set>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
namespace {

constexpr std::int64_t kMaxId = std::numeric_limits<TokenId>::max();

// An id, or a list of ids.
Status add_ids(const bj::value& object, const std::string& file, const std::string& where,
               std::set<TokenId>& ids) {
  const bj::value* value = json::find(object, "eos_token_id");
  if (value == nullptr) return ok_status();
  const bj::array one = {*value};
  const bj::array& list = value->is_array() ? value->get_array() : one;
  for (const bj::value& item : list) {
    const std::optional<std::int64_t> id =
        item.is_int64() ? std::optional(item.get_int64()) : std::nullopt;
    if (!id || *id < 0 || *id > kMaxId) {
      return Error{ErrorCode::kInvalidArgument, file + ": '" +
                                                    json::join_path(where, "eos_token_id") +
                                                    "' must be a token id or a list of them"};
    }
    ids.insert(static_cast<TokenId>(*id));
  }
  return ok_status();
}

// Absent files give an empty object.
Result<bj::value> read_optional(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return bj::value(bj::object());
  return json::parse_file(path);
}

void add_tokenizer_eos(const bj::value& tokenizer_config, std::set<TokenId>& ids) {
  const bj::value* token = json::find(tokenizer_config, "eos_token");
  if (token != nullptr && token->is_object()) token = json::find(*token, "content");
  const bj::value* added = json::find(tokenizer_config, "added_tokens_decoder");
  if (token == nullptr || !token->is_string() || added == nullptr || !added->is_object()) return;
  for (const auto& member : added->get_object()) {
    const bj::value* content = json::find(member.value(), "content");
    if (content == nullptr || *content != *token) continue;
    TokenId id = 0;
    const bj::string_view digits = member.key();
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (ec == std::errc() && end == digits.data() + digits.size() && id >= 0) ids.insert(id);
  }
}

}  // namespace

Result<GenerationDefaults> read_generation_defaults(const std::string& folder,
                                                    const bj::value& config) {
  GenerationDefaults result;
  std::set<TokenId> ids;
  FLOTILLA_TRY_STATUS(add_ids(config, folder + "/config.json", "", ids));
  if (const bj::value* text = json::find(config, "text_config")) {
    FLOTILLA_TRY_STATUS(add_ids(*text, folder + "/config.json", "text_config", ids));
  }
  const std::string path = folder + "/generation_config.json";
  FLOTILLA_TRY(const bj::value generation, read_optional(path));
  FLOTILLA_TRY_STATUS(add_ids(generation, path, "", ids));
  FLOTILLA_TRY(const bj::value tokenizer_config, read_optional(folder + "/tokenizer_config.json"));
  add_tokenizer_eos(tokenizer_config, ids);
  result.eos_ids.assign(ids.begin(), ids.end());

  const auto read_fields = [&]() -> Status {
    FLOTILLA_TRY(result.temperature, json::get_double(generation, "temperature", 0, 100));
    FLOTILLA_TRY(result.top_p, json::get_double(generation, "top_p", 0, 1));
    FLOTILLA_TRY(result.min_p, json::get_double(generation, "min_p", 0, 1));
    FLOTILLA_TRY(result.repetition_penalty,
                 json::get_double(generation, "repetition_penalty", 0, 100));
    FLOTILLA_TRY(const std::optional<std::int64_t> top_k,
                 json::get_int(generation, "top_k", 0, kMaxId));
    if (top_k) result.top_k = static_cast<int>(*top_k);
    FLOTILLA_TRY(const std::optional<bool> do_sample, json::get_bool(generation, "do_sample"));
    if (do_sample && !*do_sample) result.temperature = 0;
    return ok_status();
  };
  if (Status status = read_fields(); !status.ok()) {
    return Error{status.error().code, path + ": " + status.error().message, status.error().param};
  }
  return result;
}

}  // namespace flotilla::checkpoint
