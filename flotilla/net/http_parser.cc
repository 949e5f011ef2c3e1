#include "flotilla/net/http_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include "flotilla/net/url.h"

namespace flotilla::net {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

namespace {

// Framing between chunks: sizes, extensions, trailers. Beast sets no limit of its own.
constexpr std::size_t kMaxChunkFraming = 16u << 10;

std::string_view view(BeastView text) { return {text.data(), text.size()}; }

bool has_token(const Headers& headers, std::string_view name, std::string_view token) {
  for (std::string_view value : headers.find_all(name)) {
    if (http::token_list(BeastView(value.data(), value.size()))
            .exists(BeastView(token.data(), token.size()))) {
      return true;
    }
  }
  return false;
}

bool equal_ascii(std::string_view a, std::string_view b) {
  return boost::beast::iequals(BeastView(a.data(), a.size()), BeastView(b.data(), b.size()));
}

}  // namespace

struct RequestParser::Impl final : http::basic_parser<true> {
  HttpRequest request;
  int version = 0;
  bool head_done = false;
  unsigned status = 0;  // set when we refuse, as opposed to Beast
  std::string message;

  void refuse(unsigned with, std::string why, error_code& ec) {
    status = with;
    message = std::move(why);
    ec = http::error::bad_value;
  }

  // --- called by Beast
  void on_request_impl(http::verb, BeastView method, BeastView target, int v,
                       error_code& ec) override {
    version = v;
    request.method = view(method);
    if (v != 10 && v != 11) return refuse(505, "only HTTP/1.0 and HTTP/1.1 are supported", ec);
    auto parsed = parse_request_target(view(target));
    if (!parsed.ok()) return refuse(400, parsed.error().message, ec);
    request.path = std::move(parsed->path);
    request.query = std::move(parsed->query);
  }
  void on_response_impl(int, BeastView, int, error_code&) override {}
  void on_field_impl(http::field, BeastView name, BeastView value, error_code&) override {
    if (head_done) return;  // a trailer must not pass for a header
    request.headers.add(std::string(view(name)), std::string(view(value)));
  }
  void on_header_impl(error_code& ec) override {
    head_done = true;
    const auto hosts = request.headers.find_all("Host");
    if (hosts.size() > 1) return refuse(400, "more than one Host header", ec);
    if (hosts.empty() && version == 11) return refuse(400, "the Host header is missing", ec);
    if (request.headers.find("Transfer-Encoding")) {
      // Anything but plain chunked would leave the length of the body open to interpretation.
      if (version == 10) return refuse(400, "Transfer-Encoding in an HTTP/1.0 request", ec);
      const auto codings = request.headers.find_all("Transfer-Encoding");
      if (codings.size() != 1 || !equal_ascii(codings[0], "chunked")) {
        return refuse(501, "only the transfer coding 'chunked' is supported", ec);
      }
    }
    if (const auto expect = request.headers.find("Expect");
        expect && !equal_ascii(*expect, "100-continue")) {
      return refuse(417, "only 'Expect: 100-continue' is supported", ec);
    }
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code&) override {
    // The announced length is a claim: memory follows what really arrives.
    if (length)
      request.body.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(*length, 256u << 10)));
  }
  std::size_t on_body_impl(BeastView body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, BeastView, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
};

RequestParser::RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->header_limit(static_cast<std::uint32_t>(max_header_bytes));
  impl_->body_limit(max_body_bytes);
  impl_->eager(false);  // stop after the head
}

RequestParser::~RequestParser() = default;

RequestParser::Step RequestParser::feed(std::string_view data) {
  Step step;
  const auto fail = [&](unsigned status, std::string message) {
    step.outcome = Step::Outcome::kError;
    step.status = status;
    step.message = std::move(message);
    return step;
  };
  const bool had_head = impl_->head_done;
  if (had_head) impl_->eager(true);
  while (!impl_->is_done()) {
    const std::string_view rest = data.substr(step.consumed);
    error_code ec;
    step.consumed += impl_->put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
    if (ec == http::error::need_more) {
      if (had_head && data.size() - step.consumed > kMaxChunkFraming) {
        return fail(400, "the framing of the chunked body is too long");
      }
      return step;
    }
    if (ec) {
      if (impl_->status) return fail(impl_->status, impl_->message);
      if (ec == http::error::body_limit) return fail(413, "the request body is too large");
      if (ec == http::error::header_limit) return fail(431, "the request head is too large");
      if (ec == http::error::bad_version)
        return fail(505, "only HTTP/1.0 and HTTP/1.1 are supported");
      return fail(400, "malformed HTTP request: " + ec.message());
    }
    if (!had_head && impl_->is_header_done()) {
      step.outcome = Step::Outcome::kHead;
      return step;
    }
    if (step.consumed == data.size() && !impl_->is_done()) return step;
  }
  step.outcome = had_head ? Step::Outcome::kDone : Step::Outcome::kHead;
  return step;
}

HttpRequest& RequestParser::request() { return impl_->request; }
bool RequestParser::is_http_1_0() const { return impl_->version == 10; }
bool RequestParser::keep_alive() const { return impl_->keep_alive(); }
bool RequestParser::expects_continue() const {
  return impl_->version == 11 && impl_->request.headers.find("Expect").has_value();
}
bool RequestParser::has_body() const { return !impl_->is_done(); }
bool RequestParser::is_websocket_upgrade() const {
  return impl_->version == 11 && impl_->request.method == "GET" &&
         has_token(impl_->request.headers, "Connection", "upgrade") &&
         has_token(impl_->request.headers, "Upgrade", "websocket");
}

}  // namespace flotilla::net
