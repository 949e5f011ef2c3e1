#include "apps/flotilla_coordinator/admin_client.h"

#include <curl/curl.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/json/json.h"
#include "flotilla/settings/command_line.h"

namespace flotilla::apps {
namespace {

constexpr long kTimeoutMs = 30'000;
constexpr std::size_t kMaxAnswer = std::size_t{64} << 20;

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

std::size_t append(char* data, std::size_t size, std::size_t count, void* to) {
  auto& body = *static_cast<std::string*>(to);
  if (body.size() + size * count > kMaxAnswer) return 0;
  body.append(data, size * count);
  return size * count;
}

std::string escaped(CURL* curl, const std::string& text) {
  char* raw = curl_easy_escape(curl, text.data(), static_cast<int>(text.size()));
  std::string out = raw == nullptr ? std::string() : raw;
  curl_free(raw);
  return out;
}

Error error_of(long status, const std::string& body) {
  std::string message = "the coordinator answered " + std::to_string(status);
  if (const auto value = json::parse(body); value.ok()) {
    if (const auto* error = json::find(*value, "error")) {
      if (const auto text = json::get_string(*error, "message"); text.ok() && *text) {
        message = **text;
      }
    }
  }
  return {status == 401 || status == 403 ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
          std::move(message)};
}

}  // namespace

void add_admin_options(CLI::App& command, AdminTarget& target) {
  command.add_option("--url", target.url, "address of the running coordinator")
      ->capture_default_str();
  settings::take_from_environment(
      *command.add_option("--admin-key", target.key, "its admin key, or @FILE"), target.key,
      "FLOTILLA_ADMIN_KEY");
  command.add_option("--tls-ca-file", target.ca_file,
                     "PEM authorities for its certificate; default: the system's");
}

Result<boost::json::value> ask_admin(const AdminTarget& target, const std::string& method,
                                     const std::string& path,
                                     const std::vector<std::pair<std::string, std::string>>& query,
                                     const std::string& body_out) {
  FLOTILLA_TRY(const std::string key, coordinator::read_admin_key(target.key));
  if (key.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the admin key is missing: --admin-key @FILE or FLOTILLA_ADMIN_KEY"};
  }
  const Handle curl(curl_easy_init(), &curl_easy_cleanup);
  if (!curl) return Error{ErrorCode::kInternal, "libcurl could not be initialised"};
  std::string url = target.url;
  while (url.ends_with('/')) url.pop_back();
  url += path;
  for (std::size_t i = 0; i < query.size(); ++i) {
    url += (i == 0 ? "?" : "&") + query[i].first + "=" + escaped(curl.get(), query[i].second);
  }
  const List headers(curl_slist_append(nullptr, ("Authorization: Bearer " + key).c_str()),
                     &curl_slist_free_all);
  std::string body;
  char why[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  if (!target.ca_file.empty()) curl_easy_setopt(curl.get(), CURLOPT_CAINFO, target.ca_file.c_str());
  if (method != "GET") {
    curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(body_out.size()));
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body_out.c_str());
  }
  if (const CURLcode done = curl_easy_perform(curl.get()); done != CURLE_OK) {
    return Error{ErrorCode::kUnavailable,
                 target.url + ": " + (why[0] != 0 ? why : curl_easy_strerror(done))};
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status < 200 || status > 299) return error_of(status, body);
  return json::parse(body);
}

}  // namespace flotilla::apps
