// One HTTP request of a download. Blocking, over libcurl.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::download {

struct FetchOptions {
  std::string ca_file;  // PEM; empty: the system's authorities
  // Secrets go over plain HTTP to this machine only, unless this is set.
  bool insecure = false;
  long connect_timeout_s = 20;
  long stall_timeout_s = 60;  // without a byte
};

struct FetchRequest {
  std::string url;
  std::string token = {};     // as a bearer; not sent to other hosts that the server names
  std::uint64_t from = 0;     // asks for the rest from this byte
  std::string if_range = {};  // ... if the file is still the one with this ETag
  bool head_only = false;
};

struct FetchHead {
  long status = 0;
  std::optional<std::uint64_t> length;       // of the body
  std::optional<std::uint64_t> range_first;  // of Content-Range
  std::optional<std::uint64_t> range_total;
  std::string etag;
  std::string next;  // URL of the next page
  std::int64_t retry_after_s = 0;

  bool ok() const { return status >= 200 && status < 300; }
};

struct FetchSinks {
  std::function<Status(const FetchHead&)> on_head = {};  // of the last answer; once
  std::function<Status(std::string_view)> on_data = {};  // only after on_head said ok
  std::function<bool()> stop = {};                       // asked often
};

// The head of the answer, whatever its status. An error of a sink ends it and is passed on; what
// the network does is kUnavailable, an untrusted certificate kPermissionDenied, a stop kCancelled.
// Messages hold no query of the URL and no token.
Result<FetchHead> fetch(const FetchRequest& request, const FetchOptions& options,
                        const FetchSinks& sinks);

// The whole body of a small file; errors for statuses other than 2xx as status_error() has them.
Result<std::string> fetch_text(const FetchRequest& request, const FetchOptions& options,
                               std::size_t max_bytes, FetchHead* head = nullptr);

// kNotFound, kPermissionDenied, or kUnavailable for what may pass.
Error status_error(const FetchHead& head, std::string_view url);

// "https://host:port" of a URL, in lower case; empty when it is none of http or https.
std::string origin_of(std::string_view url);
std::string without_query(std::string_view url);
// Percent-encodes all but letters, digits and -_.~/
std::string escape_path(std::string_view path);

}  // namespace flotilla::download
