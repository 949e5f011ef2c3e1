#include "flotilla/download/fetch.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>

#include "flotilla/base/text.h"

namespace flotilla::download {
namespace {

constexpr long kMaxRedirects = 8;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

// "bytes 5-9/10"
void read_content_range(std::string_view text, FetchHead& head) {
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || slash == std::string_view::npos) return;
  if (dash != std::string_view::npos && dash < slash)
    head.range_first = number(text.substr(6, dash - 6));
  head.range_total = number(text.substr(slash + 1));
}

// The URL of rel="next" in a Link header.
std::string next_link(std::string_view text) {
  while (!text.empty()) {
    const std::size_t open = text.find('<'), close = text.find('>');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) break;
    const std::string_view url = text.substr(open + 1, close - open - 1);
    text.remove_prefix(close + 1);
    const std::string_view about = text.substr(0, text.find('<'));
    if (about.find("rel=\"next\"") != std::string_view::npos) return std::string(url);
  }
  return {};
}

struct Exchange {
  CURL* curl = nullptr;
  const FetchSinks* sinks = nullptr;
  FetchHead head;
  bool head_told = false;
  std::optional<Error> failure;

  bool tell_head() {
    if (head_told) return !failure;
    head_told = true;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &head.status);
    if (!sinks->on_head) return true;
    if (Status taken = sinks->on_head(head); !taken.ok()) failure = std::move(taken).error();
    return !failure;
  }
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    exchange.head = {};  // of the next answer
    return line.size();
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim_ascii(line.substr(colon + 1));
  FetchHead& head = exchange.head;
  if (name == "content-length") head.length = number(value);
  if (name == "content-range") read_content_range(value, head);
  if (name == "etag") head.etag = value.substr(0, 256);
  if (name == "link") head.next = next_link(value);
  if (name == "retry-after")
    head.retry_after_s =
        static_cast<std::int64_t>(std::min<std::uint64_t>(number(value).value_or(0), 3'600));
  return line.size();
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view piece(data, size * count);
  if (!exchange.tell_head()) return CURL_WRITEFUNC_ERROR;
  if (!exchange.sinks->on_data) return piece.size();
  if (Status taken = exchange.sinks->on_data(piece); !taken.ok()) {
    exchange.failure = std::move(taken).error();
    return CURL_WRITEFUNC_ERROR;
  }
  return piece.size();
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& exchange = *static_cast<Exchange*>(user);
  return exchange.sinks->stop && exchange.sinks->stop() ? 1 : 0;
}

bool is_here(std::string_view origin) {
  std::string_view host = origin.substr(origin.find("//") + 2);
  host = host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.find(':'));
  if (host == "localhost" || host == "[::1]") return true;
  // An address, and no name that begins like one.
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string origin_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return {};
  const std::size_t end = std::min(url.find_first_of("/?#", scheme + 3), url.size());
  std::string origin = lower(url.substr(0, end));
  const bool known = origin.starts_with("http://") || origin.starts_with("https://");
  // Who writes a user into a URL means to hide where it leads.
  if (!known || end == scheme + 3 || origin.find('@') != std::string::npos) return {};
  return origin;
}

std::string without_query(std::string_view url) {
  return std::string(url.substr(0, url.find_first_of("?#")));
}

std::string escape_path(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

Error status_error(const FetchHead& head, std::string_view url) {
  Error out{ErrorCode::kUnavailable,
            without_query(url) + " answered " + std::to_string(head.status)};
  out.retry_after_s = head.retry_after_s;
  if (head.status == 401 || head.status == 403) {
    out.code = ErrorCode::kPermissionDenied;
    out.message += ": a key or token is missing, wrong, or not enough";
  } else if (head.status == 404 || head.status == 410) {
    out.code = ErrorCode::kNotFound;
  } else if (head.status >= 400 && head.status < 500 && head.status != 408 && head.status != 429) {
    out.code = ErrorCode::kInvalidArgument;
  }
  return out;
}

Result<FetchHead> fetch(const FetchRequest& request, const FetchOptions& options,
                        const FetchSinks& sinks) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::string origin = origin_of(request.url);
  if (origin.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "'" + without_query(request.url).substr(0, 200) + "' is no http or https URL"};
  }
  const bool secure = origin.starts_with("https://");
  if (!secure && !request.token.empty() && !options.insecure && !is_here(origin)) {
    return Error{ErrorCode::kInvalidArgument,
                 origin + " would get a key without TLS; use https, or say --insecure"};
  }
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (!curl) return Error{ErrorCode::kInternal, "libcurl could not be initialised"};
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr,
                                                                      &curl_slist_free_all);
  if (!request.if_range.empty()) {
    headers.reset(curl_slist_append(nullptr, ("If-Range: " + request.if_range).c_str()));
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  }
  Exchange exchange;
  exchange.curl = curl.get();
  exchange.sinks = &sinks;
  char why[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_USERAGENT, "flotilla");
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &exchange);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, &exchange);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_ERRORBUFFER, why);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_CONNECTTIMEOUT, options.connect_timeout_s);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, options.stall_timeout_s);
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (!request.token.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    set(CURLOPT_XOAUTH2_BEARER, request.token.c_str());
  }
  // As a header's text, not as an offset: the answer is judged here.
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  if (request.head_only) set(CURLOPT_NOBODY, 1L);
  const CURLcode done = curl_easy_perform(curl.get());
  if (exchange.failure) return std::move(*exchange.failure);
  if (done == CURLE_OK) {
    if (!exchange.tell_head()) return std::move(*exchange.failure);
    return exchange.head;
  }
  if (done == CURLE_ABORTED_BY_CALLBACK) return Error{ErrorCode::kCancelled, "stopped"};
  const bool untrusted = done == CURLE_PEER_FAILED_VERIFICATION || done == CURLE_SSL_CACERT_BADFILE;
  return Error{untrusted ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
               origin + ": " + (why[0] != 0 ? why : curl_easy_strerror(done))};
}

Result<std::string> fetch_text(const FetchRequest& request, const FetchOptions& options,
                               std::size_t max_bytes, FetchHead* head_out) {
  std::string body;
  FetchSinks sinks;
  sinks.on_head = [&](const FetchHead& head) -> Status {
    if (!head.ok()) return status_error(head, request.url);
    return ok_status();
  };
  sinks.on_data = [&](std::string_view piece) -> Status {
    if (body.size() + piece.size() > max_bytes) {
      return Error{ErrorCode::kTooLarge, without_query(request.url) + " exceeds the limit of " +
                                             std::to_string(max_bytes) + " bytes"};
    }
    body += piece;
    return ok_status();
  };
  FLOTILLA_TRY(FetchHead head, fetch(request, options, sinks));
  if (head_out != nullptr) *head_out = std::move(head);
  return body;
}

}  // namespace flotilla::download
