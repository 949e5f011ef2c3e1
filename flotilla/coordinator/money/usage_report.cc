#include "flotilla/coordinator/money/usage_report.h"

#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <map>

#include "flotilla/coordinator/admin/query.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxLines = 10'000;
constexpr std::int64_t kDefaultDays = 30;

bool parse_digits(std::string_view text, int& out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

Status set_group(UsageQuestion& question, std::string_view name, bool all_accounts) {
  if (name == "day") {
    question.by_day = true;
  } else if (name == "model") {
    question.by_model = true;
  } else if (name == "key") {
    question.by_key = true;
  } else if (name == "account" && all_accounts) {
    question.by_account = true;
  } else {
    return Error{ErrorCode::kInvalidArgument,
                 all_accounts ? "group_by is a list of day, model, key and account"
                              : "group_by is a list of day, model and key",
                 "group_by"};
  }
  return ok_status();
}

Result<std::map<std::int64_t, std::string>> names(store::Database& database,
                                                  std::string_view table) {
  FLOTILLA_TRY(const auto rows, database.query("SELECT id, name FROM " + std::string(table)));
  std::map<std::int64_t, std::string> out;
  for (const store::Row& row : rows) out[row.integer(0)] = row.text(1);
  return out;
}

}  // namespace

Result<std::int64_t> parse_day(std::string_view text) {
  const Error bad{ErrorCode::kInvalidArgument, "a day is written like 2026-11-30", "from"};
  int y = 0, m = 0, d = 0;
  if (text.size() != 10 || text[4] != '-' || text[7] != '-' ||
      !parse_digits(text.substr(0, 4), y) || !parse_digits(text.substr(5, 2), m) ||
      !parse_digits(text.substr(8, 2), d)) {
    return bad;
  }
  const std::chrono::year_month_day day{std::chrono::year(y),
                                        std::chrono::month(static_cast<unsigned>(m)),
                                        std::chrono::day(static_cast<unsigned>(d))};
  if (m < 1 || d < 1 || !day.ok()) return bad;
  return std::int64_t{std::chrono::sys_days(day).time_since_epoch().count()};
}

std::string format_day(std::int64_t day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int>(day)))};
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return buffer;
}

Result<UsageQuestion> parse_usage_question(std::string_view query, std::int64_t today,
                                           bool all_accounts) {
  UsageQuestion question;
  question.last_day = today;
  if (const auto to = query_value(query, "to")) {
    FLOTILLA_TRY(question.last_day, parse_day(*to));
  }
  question.first_day = question.last_day - (kDefaultDays - 1);
  if (const auto from = query_value(query, "from")) {
    FLOTILLA_TRY(question.first_day, parse_day(*from));
  }
  if (question.first_day > question.last_day) {
    return Error{ErrorCode::kInvalidArgument, "'from' lies behind 'to'", "from"};
  }
  std::string groups = query_value(query, "group_by").value_or("day,model");
  groups += ',';
  for (std::size_t begin = 0, end = 0; (end = groups.find(',', begin)) != std::string::npos;
       begin = end + 1) {
    if (end == begin) continue;
    FLOTILLA_TRY_STATUS(
        set_group(question, std::string_view(groups).substr(begin, end - begin), all_accounts));
  }
  return question;
}

Result<std::vector<UsageLine>> report_usage(store::Database& database,
                                            const UsageQuestion& question) {
  std::string groups;
  const auto add = [&](bool wanted, std::string_view column) {
    if (wanted) groups += (groups.empty() ? "" : ", ") + std::string(column);
  };
  add(question.by_day, "day");
  add(question.by_account, "account");
  add(question.by_model, "model");
  add(question.by_key, "api_key");
  std::string sql = "SELECT " + groups + (groups.empty() ? "" : ", ");
  for (const std::string_view sum :
       {"jobs", "prompt_tokens", "cached_tokens", "output_tokens", "charged"}) {
    sql += "CAST(COALESCE(SUM(" + std::string(sum) + "), 0) AS BIGINT)";
    sql += sum == "charged" ? " " : ", ";
  }
  sql += "FROM usage_days WHERE day >= :p1 AND day <= :p2";
  std::vector<store::Value> parameters{question.first_day, question.last_day};
  if (question.account) {
    sql += " AND account = :p3";
    parameters.emplace_back(static_cast<std::int64_t>(question.account->value));
  }
  if (!groups.empty()) sql += " GROUP BY " + groups + " ORDER BY " + groups;
  sql += " LIMIT " + std::to_string(kMaxLines + 1);
  FLOTILLA_TRY(const auto rows, database.query(sql, parameters));
  if (rows.size() > kMaxLines) {
    return Error{ErrorCode::kInvalidArgument,
                 "more than " + std::to_string(kMaxLines) + " lines; ask for fewer days or groups",
                 "from"};
  }
  FLOTILLA_TRY(const auto key_names, names(database, "api_keys"));
  FLOTILLA_TRY(const auto account_names, names(database, "accounts"));
  std::vector<UsageLine> lines;
  for (const store::Row& row : rows) {
    UsageLine line;
    std::size_t column = 0;
    if (question.by_day) line.day = format_day(row.integer(column++));
    if (question.by_account) {
      const auto name = account_names.find(row.integer(column++));
      if (name != account_names.end()) line.account = name->second;
    }
    if (question.by_model) line.model = row.text(column++);
    if (question.by_key) {
      line.key = row.integer(column++);
      const auto name = key_names.find(*line.key);
      if (name != key_names.end()) line.key_name = name->second;
    }
    line.counts = {row.integer(column), row.integer(column + 1), row.integer(column + 2),
                   row.integer(column + 3), row.integer(column + 4)};
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string usage_as_json(const UsageQuestion& question, const std::vector<UsageLine>& lines) {
  bj::array data;
  for (const UsageLine& line : lines) {
    bj::object entry;
    if (question.by_day) entry["day"] = line.day;
    if (question.by_account) entry["account"] = line.account;
    if (question.by_model) entry["model"] = line.model;
    if (question.by_key) {
      entry["key_id"] = std::to_string(*line.key);  // as in /v1/keys
      entry["key_name"] = line.key_name;
    }
    entry["requests"] = line.counts.jobs;
    entry["input_tokens"] = line.counts.prompt_tokens;
    entry["cached_input_tokens"] = line.counts.cached_tokens;
    entry["output_tokens"] = line.counts.output_tokens;
    entry["charged_micro"] = line.counts.charged;
    data.push_back(std::move(entry));
  }
  return bj::serialize(bj::object{{"object", "list"},
                                  {"from", format_day(question.first_day)},
                                  {"to", format_day(question.last_day)},
                                  {"data", std::move(data)}});
}

std::string usage_as_csv(const UsageQuestion& question, const std::vector<UsageLine>& lines) {
  std::string out;
  if (question.by_day) out += "day,";
  if (question.by_account) out += "account,";
  if (question.by_model) out += "model,";
  if (question.by_key) out += "key_id,key_name,";
  out += "requests,input_tokens,cached_input_tokens,output_tokens,charged_micro\r\n";
  for (const UsageLine& line : lines) {
    if (question.by_day) out += line.day + ',';
    if (question.by_account) out += csv_field(line.account) + ',';
    if (question.by_model) out += csv_field(line.model) + ',';
    if (question.by_key) out += std::to_string(*line.key) + ',' + csv_field(line.key_name) + ',';
    const UsageCounts& counts = line.counts;
    for (const std::int64_t value :
         {counts.jobs, counts.prompt_tokens, counts.cached_tokens, counts.output_tokens}) {
      out += std::to_string(value) + ',';
    }
    out += std::to_string(counts.charged) + "\r\n";
  }
  return out;
}

}  // namespace flotilla::coordinator
