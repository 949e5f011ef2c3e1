#include "flotilla/protocol/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "flotilla/json/json.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/message_samples.h"
#include "flotilla/protocol/packed_tokens.h"

namespace flotilla::protocol {
namespace {

using ::testing::HasSubstr;

template <class Variant>
Result<Variant> decode_as(std::uint8_t kind, std::string_view body) {
  if constexpr (std::is_same_v<Variant, HandshakeMessage>) {
    return decode_handshake(kind, body);
  } else if constexpr (std::is_same_v<Variant, ProviderMessage>) {
    return decode_provider(kind, body);
  } else {
    return decode_coordinator(kind, body);
  }
}

// Runs f.operator()<Variant>(message) for every message that either side sends.
template <class F>
void for_all(F&& f) {
  ForEachMessage<HandshakeMessage>::run(
      [&](auto m) { f.template operator()<HandshakeMessage>(m); });
  ForEachMessage<ProviderMessage>::run([&](auto m) { f.template operator()<ProviderMessage>(m); });
  ForEachMessage<CoordinatorMessage>::run(
      [&](auto m) { f.template operator()<CoordinatorMessage>(m); });
}

template <class M>
constexpr bool kPacked = std::is_same_v<M, Tokens>;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

const std::string kSourceDir = FLOTILLA_SOURCE_DIR;

TEST(Codec, EveryMessageSurvivesARoundTrip) {
  for_all([]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    auto first = encode(V(message));
    ASSERT_TRUE(first.ok()) << to_string(first.error());
    auto decoded = decode_as<V>(first->kind, first->body);
    ASSERT_TRUE(decoded.ok()) << to_string(decoded.error());
    ASSERT_TRUE(std::holds_alternative<M>(*decoded)) << M::kType;
    auto second = encode(*decoded);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(first->body, second->body) << M::kType;
    if constexpr (kPacked<M>) {
      EXPECT_EQ(std::get<M>(*decoded), message);
    }
  });
}

TEST(Codec, EveryMessageMatchesItsGoldenFile) {
  const bool update = std::getenv("FLOTILLA_UPDATE_GOLDEN") != nullptr;
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    auto encoded = encode(V(message));
    ASSERT_TRUE(encoded.ok());
    std::string text = encoded->body;
    if (kPacked<M>) {
      text = flotilla::to_hex(
          {reinterpret_cast<const std::uint8_t*>(encoded->body.data()), encoded->body.size()});
    }
    const std::string path = kSourceDir + "/tests/golden/protocol/" + std::string(M::kType) +
                             (kPacked<M> ? ".hex" : ".json");
    if (update) std::ofstream(path, std::ios::binary) << text << "\n";
    EXPECT_EQ(read_file(path), text + "\n") << path;
  });
}

TEST(Codec, GoldenFilesOfTodayAreReadByTheDecoder) {
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    if constexpr (!kPacked<M>) {
      const std::string text =
          read_file(kSourceDir + "/tests/golden/protocol/" + std::string(M::kType) + ".json");
      auto decoded = decode_as<V>(M::kKind, text);
      ASSERT_TRUE(decoded.ok()) << M::kType << ": " << to_string(decoded.error());
      EXPECT_EQ(encode(*decoded)->body, encode(V(message))->body);
    }
  });
}

TEST(Codec, KindsAndNamesAreUsedOnce) {
  std::map<int, std::string> kinds;
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    const auto [at, fresh] = kinds.emplace(M::kKind, M::kType);
    EXPECT_EQ(at->second, M::kType);  // Drain and Reject are in two lists
    EXPECT_EQ(kind_name(M::kKind), M::kType);
    EXPECT_GT(max_body_bytes(M::kKind), 0u);
  });
  std::set<std::string> names;
  for (const auto& [kind, name] : kinds) EXPECT_TRUE(names.insert(name).second) << name;
  EXPECT_EQ(max_body_bytes(255), 0u);
  EXPECT_EQ(kind_name(255), "unknown");
}

TEST(Codec, EveryMessageHasARowInTheDocument) {
  const std::string document = read_file(kSourceDir + "/docs/protocol.md");
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    EXPECT_THAT(document,
                HasSubstr("| " + std::to_string(M::kKind) + " | " + std::string(M::kType) + " | "));
  });
}

TEST(Codec, UnknownFieldsAreIgnored) {
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    if constexpr (!kPacked<M>) {
      auto body = encode(V(message))->body;
      auto value = json::parse(body);
      value->get_object()["a_later_field"] = {{"x", 1}};
      auto decoded = decode_as<V>(M::kKind, boost::json::serialize(*value));
      ASSERT_TRUE(decoded.ok()) << M::kType;
      EXPECT_EQ(encode(*decoded)->body, body);
    }
  });
}

TEST(Codec, AnEmptyObjectIsAMessageOfDefaults) {
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    if constexpr (!kPacked<M>) {
      auto decoded = decode_as<V>(M::kKind, "{}");
      ASSERT_TRUE(decoded.ok()) << M::kType;
      EXPECT_EQ(encode(*decoded)->body, encode(V(M{}))->body);
    }
  });
}

// Finds the limit of each text or list at the top of a message.
struct Limits {
  std::map<std::string, std::size_t> text, lists;
  template <class T>
  void operator()(std::string_view name, const T&, std::size_t limit = kDefaultLimit) {
    if constexpr (std::is_same_v<T, std::string>) text.emplace(name, limit);
    if constexpr (IsVector<T>::value) lists.emplace(name, limit);
  }
};

TEST(Codec, TextAndListsOverTheirLimitsAreRefusedByName) {
  int num_checked = 0;
  for_all([&]<class V>(const auto& message) {
    using M = std::decay_t<decltype(message)>;
    if constexpr (!kPacked<M>) {
      Limits limits;
      M::fields(message, limits);
      auto value = json::parse(encode(V(message))->body);
      const auto expect_refused = [&](const std::string& name, boost::json::value bad) {
        boost::json::value changed = *value;
        changed.get_object()[name] = std::move(bad);
        auto decoded = decode_as<V>(M::kKind, boost::json::serialize(changed));
        ASSERT_FALSE(decoded.ok()) << M::kType << "." << name;
        EXPECT_THAT(decoded.error().message, HasSubstr(M::kType));
        ++num_checked;
      };
      for (const auto& [name, limit] : limits.text) {
        expect_refused(name, boost::json::string(limit + 1, 'x'));
      }
      for (const auto& [name, limit] : limits.lists) {
        if (limit > 100'000) continue;  // bounded by the body's size
        expect_refused(name, boost::json::array(limit + 1));
      }
    }
  });
  EXPECT_GT(num_checked, 15);
}

TEST(Codec, EncodingRefusesWhatAReceiverWouldRefuse) {
  auto encoded = encode(CoordinatorMessage(Load{std::string(kMaxName + 1, 'm')}));
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(encoded.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(encoded.error().message, HasSubstr("load: 'model' of 129 exceeds the limit of 128"));
  Prepare prepare;
  prepare.job = boost::json::string(Prepare::kMaxBytes, 'x');
  EXPECT_EQ(encode(CoordinatorMessage(prepare)).error().code, ErrorCode::kTooLarge);
}

TEST(Codec, WrongTypesAreRefusedWithThePathOfTheField) {
  auto decoded = decode_provider(Register::kKind, R"({"models":[{"id":"a"},{"id":7}]})");
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(link_fault(decoded.error()), LinkFault::kMalformedMessage);
  EXPECT_THAT(decoded.error().message, HasSubstr("'models.id' must be a string"));
  for (const char* bad : {R"({"sequence":-1})", R"({"sequence":1.5})", R"({"sequence":"1"})",
                          R"({"sequence":18446744073709551616})", R"({"draining":1})",
                          R"({"slots":{}})", "[]", "", "{", "null"}) {
    EXPECT_EQ(link_fault(decode_provider(Heartbeat::kKind, bad).error()),
              LinkFault::kMalformedMessage)
        << bad;
  }
}

TEST(Codec, SixtyFourBitNumbersAreExact) {
  auto decoded = decode_provider(Heartbeat::kKind, R"({"sequence":18446744073709551615})");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Heartbeat>(*decoded).sequence, 18446744073709551615u);
}

TEST(Codec, ANewNameOfAnEnumerationReadsAsItsFirstValue) {
  auto decoded =
      decode_provider(Refuse::kKind, R"({"reason":"eclipse","error":{"code":"sunspots"}})");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Refuse>(*decoded).reason, RefuseReason::kOther);
  EXPECT_EQ(std::get<Refuse>(*decoded).error.code, ErrorCode::kInternal);
}

TEST(Codec, AMessageOfTheOtherSideIsUnexpected) {
  EXPECT_EQ(link_fault(decode_provider(Prepare::kKind, "{}").error()),
            LinkFault::kUnexpectedMessage);
  EXPECT_EQ(link_fault(decode_coordinator(Lease::kKind, "{}").error()),
            LinkFault::kUnexpectedMessage);
  EXPECT_EQ(link_fault(decode_provider(Hello::kKind, "{}").error()), LinkFault::kUnexpectedMessage);
  EXPECT_EQ(link_fault(decode_provider(250, "{}").error()), LinkFault::kUnexpectedMessage);
}

TEST(Codec, ErrorsAlwaysFitTheWire) {
  std::string long_text;
  while (long_text.size() < 3000) long_text += "aé";
  const WireError wire = to_wire(Error{ErrorCode::kNotFound, long_text, std::string(500, 'p')});
  Refuse refuse;
  refuse.error = wire;
  EXPECT_TRUE(encode(ProviderMessage(refuse)).ok());
  EXPECT_TRUE(is_valid_utf8(wire.message));
  EXPECT_TRUE(is_valid_utf8(to_wire(Error{ErrorCode::kInternal, "\xFF\xFE"}).message));
  EXPECT_EQ(from_wire(to_wire(Error{ErrorCode::kNotFound, "m", "p"})).param, "p");
}

TEST(PackedTokens, EveryPrefixIsRefusedOrComplete) {
  const std::string body = *pack(sample<Tokens>());
  for (std::size_t n = 0; n < body.size(); ++n) {
    auto cut = unpack_tokens(std::string_view(body).substr(0, n));
    ASSERT_FALSE(cut.ok()) << n;
    EXPECT_EQ(link_fault(cut.error()), LinkFault::kMalformedMessage);
  }
  EXPECT_TRUE(unpack_tokens(body + "later").ok());
}

// Appended when it is not zero: older readers take it for something that they do not know.
TEST(PackedTokens, TheCachedShareFollowsTheRest) {
  Tokens tokens = sample<Tokens>();
  const std::string before = *pack(tokens);
  tokens.cached_tokens = 70'000;
  const std::string body = *pack(tokens);
  EXPECT_TRUE(body.starts_with(before));
  EXPECT_EQ(*unpack_tokens(body), tokens);
  EXPECT_FALSE(unpack_tokens(std::string_view(body).substr(0, body.size() - 1)).ok());
  EXPECT_EQ(unpack_tokens(before)->cached_tokens, 0u);
}

TEST(PackedTokens, MalformedBodiesAreRefused) {
  const auto refused = [](std::string_view body) { return !unpack_tokens(body).ok(); };
  using namespace std::string_view_literals;
  EXPECT_TRUE(refused("\0\xFF\xFF\xFF\xFF\x7F"sv));                          // ids: absurd count
  EXPECT_TRUE(refused("\x80\x00\0\0\0"sv));                                  // zero in two bytes
  EXPECT_TRUE(refused("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\0\0\0"sv));  // 70 bits
  EXPECT_TRUE(refused("\0\0\1\3\0\0"sv));                                    // channel 3
  EXPECT_TRUE(refused("\0\0\1\0\2\xC3\x28\0"sv));                            // not UTF-8
  EXPECT_TRUE(refused("\0\0\0\1\2\0\0\0\0\0\0\xF0\x7F\0\0"sv));              // infinite
  EXPECT_FALSE(refused("\0\0\0\0"sv));
}

TEST(PackedTokens, LimitsHoldOnBothSides) {
  Tokens many;
  many.ids.assign(Tokens::kMaxIds + 1, 1);
  EXPECT_EQ(pack(many).error().code, ErrorCode::kTooLarge);
  Tokens text;
  text.deltas = {{TextChannel::kContent, std::string(Tokens::kMaxText + 1, 'x')}};
  EXPECT_EQ(pack(text).error().code, ErrorCode::kTooLarge);
  Tokens name;
  name.deltas = {{TextChannel::kToolCall, "", 0, "", std::string(Tokens::kMaxCallName + 1, 'x')}};
  EXPECT_EQ(pack(name).error().code, ErrorCode::kTooLarge);
  Tokens nan;
  nan.logprobs = {{1, std::nan(""), ""}};
  EXPECT_FALSE(pack(nan).ok());
}

}  // namespace
}  // namespace flotilla::protocol
