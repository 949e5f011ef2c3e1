#include "flotilla/net/http_parser.h"

#include <gtest/gtest.h>

namespace flotilla::net {
namespace {

using Outcome = RequestParser::Step::Outcome;

struct Parsed {
  Outcome outcome = Outcome::kNeedMore;
  unsigned status = 0;
  HttpRequest request;
  std::size_t left = 0;
};

// Feeds `text` in pieces of `piece` bytes.
Parsed parse(std::string_view text, std::size_t piece = 1u << 20, std::size_t max_body = 1000) {
  RequestParser parser(1000, max_body);
  Parsed out;
  std::string held;
  while (!text.empty()) {
    held += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    while (true) {
      const auto step = parser.feed(held);
      held.erase(0, step.consumed);
      out.outcome = step.outcome;
      out.status = step.status;
      if (step.outcome == Outcome::kHead) continue;
      if (step.outcome == Outcome::kNeedMore) break;
      out.request = parser.request();
      out.left = held.size() + text.size();
      return out;
    }
  }
  return out;
}

constexpr std::string_view kChunked =
    "POST /v1/x%2Fy?q=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    "4;ext=1\r\nWiki\r\n5\r\npedia\r\n0\r\nTrailer: t\r\n\r\nGET";

TEST(RequestParser, ResultDoesNotDependOnHowTheBytesWereCut) {
  for (std::size_t piece = 1; piece <= kChunked.size(); ++piece) {
    const Parsed parsed = parse(kChunked, piece);
    ASSERT_EQ(parsed.outcome, Outcome::kDone) << piece;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/v1/x/y");
    EXPECT_EQ(parsed.request.query, "q=1");
    EXPECT_EQ(parsed.request.body, "Wikipedia");
    EXPECT_FALSE(parsed.request.headers.find("Trailer")) << "a trailer passed for a header";
    EXPECT_EQ(parsed.left, 3u);
  }
}

TEST(RequestParser, RefusesWhatLeavesTheBodyLengthOpen) {
  const auto status = [](std::string_view fields) {
    return parse("POST / HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n0\r\n\r\n").status;
  };
  EXPECT_EQ(status("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400u);
  EXPECT_EQ(status("Content-Length: 3\r\nContent-Length: 4\r\n"), 400u);
  EXPECT_EQ(status("Content-Length: -1\r\n"), 400u);
  EXPECT_EQ(status("Content-Length: 99999999999999999999\r\n"), 400u);
  EXPECT_EQ(status("Transfer-Encoding: gzip\r\n"), 501u);
  EXPECT_EQ(status("Transfer-Encoding: gzip, chunked\r\n"), 501u);
  EXPECT_EQ(status("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), 400u);
  EXPECT_EQ(parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").status, 400u);
}

TEST(RequestParser, NamesTheLimitByStatus) {
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n").status, 413u);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n").status,
            413u);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(2000, 'a') + "\r\n\r\n").status,
            431u);
  EXPECT_EQ(parse("GET /" + std::string(2000, 'a'), 100).status, 431u);
  EXPECT_EQ(parse("GET / HTTP/1.2\r\nHost: h\r\n\r\n").status, 505u);
  EXPECT_EQ(parse("GET / HTTP/2.0\r\nHost: h\r\n\r\n").status, 505u);
}

TEST(RequestParser, RefusesAnEndlessChunkExtension) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;";
  EXPECT_EQ(parse(head + std::string(100'000, 'x'), 4096).status, 400u);
}

TEST(RequestParser, RefusesMalformedHeads) {
  for (const char* bad :
       {"GET / HTTP/1.1\r\n\r\n",                        // no Host
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",  // two
        "GET /% HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHo st: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : h\r\n\r\n", "G\x01T / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03garbage\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"}) {
    EXPECT_EQ(parse(bad).status, 400u) << bad;
  }
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n").status, 417u);
}

TEST(RequestParser, RecognisesUpgradeAndKeepAlive) {
  const auto head = [](std::string_view text) {
    auto parser = std::make_unique<RequestParser>(1000, 1000);
    EXPECT_EQ(parser->feed(text).outcome, Outcome::kHead);
    return parser;
  };
  EXPECT_TRUE(head("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "
                   "WebSocket\r\n\r\n")
                  ->is_websocket_upgrade());
  EXPECT_FALSE(
      head("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n")->is_websocket_upgrade());
  EXPECT_TRUE(head("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->keep_alive());
  EXPECT_FALSE(head("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")->keep_alive());
  EXPECT_FALSE(head("GET / HTTP/1.0\r\n\r\n")->keep_alive());
  EXPECT_TRUE(head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")->keep_alive());
}

}  // namespace
}  // namespace flotilla::net
