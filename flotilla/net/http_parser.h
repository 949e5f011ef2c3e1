// Incremental parser of one HTTP/1 request over Beast's basic_parser. Internal to net/, plus
// fuzzing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "flotilla/net/http.h"

namespace flotilla::net {

// One request, one thread.
class RequestParser {
 public:
  RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes);
  ~RequestParser();

  struct Step {
    enum class Outcome {
      kNeedMore,  // everything usable was consumed; call again with what is left plus more
      kHead,      // the head is complete: look at request() and call again for the body
      kDone,
      kError,  // `status` and `message` say why; the connection cannot be used further
    };
    Outcome outcome = Outcome::kNeedMore;
    std::size_t consumed = 0;
    unsigned status = 0;
    std::string message = {};
  };
  // `data` starts with what an earlier call left over.
  Step feed(std::string_view data);

  // After kHead: method, path, query and headers; after kDone the body too.
  HttpRequest& request();
  bool is_http_1_0() const;
  bool keep_alive() const;  // what the client asks for
  bool expects_continue() const;
  bool has_body() const;  // announced
  bool is_websocket_upgrade() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::net
