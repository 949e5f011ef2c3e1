// Which web pages may call the surface from a browser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/net/http.h"

namespace flotilla::serving {

class CorsPolicy {
 public:
  // Each entry is an origin ("https://chat.example.com"), an origin with any port
  // ("http://localhost:*"), or "*" for all. None: only pages of the same host. Credentials
  // (cookies) are never allowed, so "*" is safe beside keys.
  explicit CorsPolicy(std::vector<std::string> allowed_origins);

  bool allows(std::string_view origin) const;
  // Headers for any answer to `request`; nothing when it has no Origin or the origin is not
  // allowed.
  void add_headers(const net::HttpRequest& request, net::Headers& out) const;
  // The answer to OPTIONS, which never carries a key. `allow` lists the methods of the route.
  net::HttpResponse preflight(const net::HttpRequest& request, std::string_view allow) const;
  // True for a page that is not allowed and not served from this very address (an IP address or
  // localhost: another name may be somebody's who made it point here). Browsers send some requests
  // without asking first; where no key protects the surface, such a request is refused.
  bool is_foreign(const net::HttpRequest& request) const;

 private:
  std::vector<std::string> allowed_origins_;
  bool allows_all_ = false;
};

// For configuration: the entry is one of the forms above.
Status check_origin(std::string_view entry);

}  // namespace flotilla::serving
