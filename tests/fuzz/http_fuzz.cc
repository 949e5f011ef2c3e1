// The bytes that an HTTP client sends: request line, target, headers, framing of the body. Also
// URLs of the link.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/check.h"
#include "flotilla/net/http_parser.h"
#include "flotilla/net/url.h"

namespace {

using Outcome = flotilla::net::RequestParser::Step::Outcome;

struct Parsed {
  Outcome outcome = Outcome::kNeedMore;
  std::string path, body;
  std::size_t num_headers = 0;
};

Parsed parse(std::string_view text, std::size_t piece) {
  flotilla::net::RequestParser parser(4096, 65536);
  Parsed out;
  std::string held;
  while (!text.empty()) {
    held += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    while (true) {
      const auto step = parser.feed(held);
      FLOTILLA_CHECK(step.consumed <= held.size(), "consumed more than there was");
      held.erase(0, step.consumed);
      out.outcome = step.outcome;
      if (step.outcome == Outcome::kHead) continue;
      if (step.outcome == Outcome::kNeedMore) break;
      out.path = parser.request().path;
      out.body = parser.request().body;
      out.num_headers = parser.request().headers.entries.size();
      return out;
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Parsed whole = parse(text, 1u << 20);
  const Parsed cut = parse(text, std::size_t{1} + data[0] % 64);
  // An error may show at another moment when the bytes come slowly; an accepted request must be the
  // same.
  if (whole.outcome == Outcome::kDone) {
    FLOTILLA_CHECK(cut.outcome == Outcome::kDone, "a request depends on how its bytes were cut");
    FLOTILLA_CHECK(
        cut.path == whole.path && cut.body == whole.body && cut.num_headers == whole.num_headers,
        "a request depends on how its bytes were cut");
    FLOTILLA_CHECK(whole.path == "*" || whole.path.front() == '/', "a path that is none");
    FLOTILLA_CHECK(whole.body.size() <= 65536, "a body over the limit");
  }
  (void)flotilla::net::parse_request_target(text);
  if (auto url = flotilla::net::parse_ws_url(text); url.ok()) {
    FLOTILLA_CHECK(!url->host.empty() && url->port != 0 && url->target.front() == '/',
                   "half a URL");
  }
  return 0;
}
