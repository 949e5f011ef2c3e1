#include "flotilla/net/url.h"

#include <gtest/gtest.h>

#include "flotilla/net/ws_client.h"

namespace flotilla::net {
namespace {

TEST(RequestTarget, DecodesEscapesInThePathOnly) {
  auto target = parse_request_target("/v1/models/google%2Fgemma%20x/y?a=%2F&b");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->path, "/v1/models/google/gemma x/y");
  EXPECT_EQ(target->query, "a=%2F&b");
}

TEST(RequestTarget, AcceptsAbsoluteFormAndTheAsterisk) {
  EXPECT_EQ(parse_request_target("http://host:80/a?b")->path, "/a");
  EXPECT_EQ(parse_request_target("http://host")->path, "/");
  EXPECT_EQ(parse_request_target("https://host?q")->query, "q");
  EXPECT_EQ(parse_request_target("*")->path, "*");
}

TEST(RequestTarget, RefusesBrokenEscapesControlCharactersAndOtherForms) {
  for (const char* bad :
       {"", "x", "/%", "/%4", "/%zz", "/a%00b", "/a%0d%0aX: y", "/a#b", "host:443"}) {
    EXPECT_FALSE(parse_request_target(bad).ok()) << bad;
  }
}

TEST(WsUrl, ReadsHostPortAndTarget) {
  auto url = parse_ws_url("wss://example.org:8443/link?x=1");
  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->secure);
  EXPECT_EQ(url->host, "example.org");
  EXPECT_EQ(url->port, 8443);
  EXPECT_EQ(url->target, "/link?x=1");
  EXPECT_EQ(url->authority(), "example.org:8443");
  EXPECT_EQ(parse_ws_url("ws://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_ws_url("ws://[::1]:9")->authority(), "[::1]:9");
  EXPECT_EQ(parse_ws_url("ws://h")->port, 80);
  EXPECT_EQ(parse_ws_url("wss://h")->authority(), "h");
}

TEST(WsUrl, RefusesWhatItCannotUse) {
  for (const char* bad :
       {"", "http://h", "ws://", "ws://:80", "ws://h:0", "ws://h:70000", "ws://h:x", "ws://u@h",
        "ws://h/#f", "ws://[::1", "ws://[::1]x", "ws://h /a"}) {
    EXPECT_FALSE(parse_ws_url(bad).ok()) << bad;
  }
}

TEST(PrivateOrEncrypted, MeansLoopbackOrTls) {
  for (const char* good : {"ws://127.0.0.1:1", "ws://127.9.8.7", "ws://[::1]", "ws://localhost:2",
                           "wss://example.org"}) {
    EXPECT_TRUE(*is_private_or_encrypted(good)) << good;
  }
  for (const char* bad : {"ws://10.0.0.1", "ws://127.0.0.1.example.org", "ws://127.1",
                          "ws://localhost.evil", "ws://127.0.0.256", "ws://[::ffff:127.0.0.1]"}) {
    EXPECT_FALSE(*is_private_or_encrypted(bad)) << bad;
  }
  EXPECT_FALSE(is_private_or_encrypted("ftp://x").ok());
}

}  // namespace
}  // namespace flotilla::net
