#include <gtest/gtest.h>

#include "flotilla/coordinator/catalog/catalog_table.h"
#include "flotilla/coordinator/money/testing.h"
#include "flotilla/coordinator/routing/explain.h"
#include "flotilla/coordinator/routing/router_fixture.h"
#include "flotilla/coordinator/routing/warm_pool.h"

namespace flotilla::coordinator {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

CatalogEntry entry_of(const std::string& model, char content, std::uint64_t size = 5) {
  CatalogEntry entry;
  entry.model = model;
  entry.source = "/models/" + model;
  entry.files = {{"config.json", size, std::string(64, content), {}}};
  entry.digest = download::digest_of(entry.files);
  entry.family = "gemma4_text";
  entry.context_length = 1000;
  entry.capabilities = {"tools"};
  return entry;
}

RuntimeParameters runtime(const std::string& text) { return *read_runtime_parameters(text); }

TEST(RuntimeParameters, OnlyAPositiveFiniteNumberOverridesTheResidentSize) {
  EXPECT_EQ(runtime(R"({"resident_gb":16})").resident_bytes, 16'000'000'000u);
  EXPECT_EQ(runtime(R"({"resident_gb":0.5})").resident_bytes, 500'000'000u);
  EXPECT_TRUE(runtime(R"({"resident_gb":16})").ignored.empty());
  for (const char* bad : {"0", "-16", "\"16\"", "true", "null", "[16]", "1e300"}) {
    const auto read = runtime(std::string(R"({"resident_gb":)") + bad + "}");
    EXPECT_FALSE(read.resident_bytes) << bad;
    ASSERT_EQ(read.ignored.size(), 1u) << bad;
    EXPECT_NE(read.ignored[0].find("no positive number"), std::string::npos);
  }
  EXPECT_EQ(runtime(R"({"x":"on"})").ignored, std::vector<std::string>{"x: unknown"});
  EXPECT_FALSE(read_runtime_parameters(std::string("[1]")).ok());
  EXPECT_FALSE(read_runtime_parameters(R"({"a":")" + std::string(20'000, 'x') + "\"}").ok());
}

class CatalogTable : public Books {
 protected:
  CatalogEntry publish(CatalogEntry entry, bool activate = false) {
    auto made = publish_model(database, std::move(entry), activate, kStart);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? *made : CatalogEntry{};
  }
  std::shared_ptr<const CatalogView> view(bool only = false) {
    auto loaded = load_catalog(database, only);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    return *loaded;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CatalogTable, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(CatalogTable, KeepsWhatWasPublished) {
  CatalogEntry entry = entry_of("m", 'a');
  entry.min_memory_bytes = 32 * kGiB;
  entry.runtime = runtime(R"({"resident_gb":16,"odd":1})");
  EXPECT_EQ(publish(entry).version, 1);
  const auto kept = view();
  ASSERT_EQ(kept->entries().size(), 1u);
  const CatalogEntry& got = kept->entries()[0];
  EXPECT_EQ(got.digest, entry.digest);
  EXPECT_EQ(got.files.size(), 1u);
  EXPECT_EQ(got.files[0].sha256, std::string(64, 'a'));
  EXPECT_EQ(got.min_memory_bytes, 32 * kGiB);
  EXPECT_EQ(got.runtime.resident_bytes, 16'000'000'000u);
  EXPECT_EQ(got.runtime.ignored.size(), 1u);
  EXPECT_EQ(got.capabilities, std::vector<std::string>{"tools"});
  EXPECT_EQ(got.state, CatalogState::kPublished);
  EXPECT_EQ(kept->active("m"), nullptr);
}

TEST_P(CatalogTable, OneVersionIsActive) {
  publish(entry_of("m", 'a'), true);
  EXPECT_EQ(publish(entry_of("m", 'b'), true).version, 2);
  EXPECT_EQ(view()->active("m")->version, 2);
  EXPECT_EQ(view()->version("m", 1)->state, CatalogState::kPublished);
  ASSERT_TRUE(activate_model(database, "m", 1, kStart).ok());
  EXPECT_EQ(view()->active("m")->version, 1);
  EXPECT_EQ(activate_model(database, "m", 3, kStart).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(activate_model(database, "x", 1, kStart).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(view()->active("m")->version, 1);
}

TEST_P(CatalogTable, TheSameFilesAreOneVersion) {
  publish(entry_of("m", 'a'), true);
  EXPECT_EQ(publish_model(database, entry_of("m", 'a'), false, kStart).error().code,
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(*retire_model(database, "m", 1, kStart), 1);
  CatalogEntry again = entry_of("m", 'a');
  again.source = "/elsewhere";
  EXPECT_EQ(publish(again).version, 1);
  EXPECT_EQ(view()->version("m", 1)->source, "/elsewhere");
  EXPECT_EQ(view()->version("m", 1)->state, CatalogState::kPublished);
}

TEST_P(CatalogTable, RetiredModelsAreNotServedAndNotForgotten) {
  publish(entry_of("m", 'a'), true);
  publish(entry_of("m", 'b'));
  EXPECT_EQ(*retire_model(database, "m", 0, kStart), 2);
  EXPECT_EQ(*retire_model(database, "m", 0, kStart), 0);
  EXPECT_EQ(view()->allows("m").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(view()->folder_of(entry_of("m", 'a').digest), nullptr);
  EXPECT_EQ(view()->entries().size(), 2u);
  EXPECT_FALSE(retire_model(database, "x", 0, kStart).ok());
  EXPECT_FALSE(retire_model(database, "m", 9, kStart).ok());
}

TEST_P(CatalogTable, AliasesMeanModelsAndShareNoName) {
  publish(entry_of("m", 'a'), true);
  publish(entry_of("n", 'b'), true);
  ASSERT_TRUE(set_alias(database, "fast", "m", kStart).ok());
  EXPECT_EQ(view()->resolve("fast"), "m");
  ASSERT_TRUE(set_alias(database, "fast", "n", kStart).ok());
  EXPECT_EQ(view()->resolve("fast"), "n");
  EXPECT_EQ(view()->resolve("other"), "other");
  EXPECT_EQ(set_alias(database, "m", "n", kStart).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(set_alias(database, "x", "nothing", kStart).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(set_alias(database, "a/b", "m", kStart).ok());
  EXPECT_EQ(publish_model(database, entry_of("fast", 'c'), false, kStart).error().code,
            ErrorCode::kAlreadyExists);
  ASSERT_TRUE(drop_alias(database, "fast").ok());
  EXPECT_EQ(drop_alias(database, "fast").error().code, ErrorCode::kNotFound);
}

// Routing by the catalog.
class CatalogRouting : public Routing {
 protected:
  static std::shared_ptr<const CatalogView> catalog_of(std::vector<CatalogEntry> entries,
                                                       bool only = false) {
    return std::make_shared<CatalogView>(only, std::move(entries),
                                         std::map<std::string, std::string>{});
  }
  static CatalogEntry active(CatalogEntry entry, std::int64_t version = 1) {
    entry.version = version;
    entry.state = CatalogState::kActive;
    return entry;
  }
  ProviderRecord& offers(const std::string& name, const std::string& digest,
                         std::int64_t context = 0, bool loaded = true, std::uint64_t resident = 0) {
    ProviderRecord& provider = join(name, 4, {});
    protocol::ModelOffer offer;
    offer.id = "m";
    offer.family = "claimed";
    offer.model_digest = digest;
    offer.context_length = context;
    offer.loaded = loaded;
    offer.resident_bytes = resident;
    offer.max_concurrent = 4;
    registry.set_models(provider, {offer});
    return provider;
  }
  const CatalogEntry a = active(entry_of("m", 'a')), b = active(entry_of("m", 'b'));
};

TEST_F(CatalogRouting, AnotherVersionGetsNothingAndIsCalledThat) {
  ProviderRecord& right = offers("right", a.digest);
  ProviderRecord& wrong = offers("wrong", b.digest);
  registry.set_catalog(catalog_of({a}));
  const RouteAsk ask = prompt(10);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(take(ask), "right");
  EXPECT_EQ(take(ask), "none");
  EXPECT_EQ(router.judge(wrong, "m", {}).reason, gates::Reason::kOtherVersion);
  EXPECT_EQ(router.num_candidates("m", {}), 1u);
  EXPECT_EQ(router.num_reachable("m", {}), 1u);
  const Explanation why = explain(registry, router, "m", 10, 0, std::nullopt);
  EXPECT_EQ(count_of(why.outlook.counts(), gates::Reason::kOtherVersion), 1u);
  EXPECT_EQ(count_of(why.outlook.counts(), gates::Reason::kNoSlot), 1u);
  (void)right;
}

TEST_F(CatalogRouting, AnAnswerThatBeganGoesOnWithItsVersion) {
  offers("old", a.digest);
  registry.set_catalog(catalog_of({b}));
  const RouteAsk ask = prompt(10);
  EXPECT_EQ(take(ask), "none");
  EXPECT_EQ(router.take_slot("m", {.model_digest = a.digest, .ask = &ask}).provider->id.value,
            "old");
}

TEST_F(CatalogRouting, ActivationSwitchesWhatTheNameMeans) {
  offers("one", a.digest);
  offers("two", b.digest);
  registry.set_catalog(catalog_of({a}));
  EXPECT_EQ(take(prompt(10)), "one");
  registry.set_catalog(catalog_of({b}));
  EXPECT_EQ(take(prompt(10)), "two");
  registry.set_catalog(catalog_of({}));
  EXPECT_NE(take(prompt(10)), "none");
}

TEST_F(CatalogRouting, ContextAndFamilyAreTheCatalogsNotTheNodes) {
  ProviderRecord& boasts = offers("boasts", a.digest, 1'000'000);
  ProviderRecord& small = offers("small", a.digest, 500);
  ProviderRecord& other = offers("other", b.digest, 1'000'000);
  registry.set_catalog(catalog_of({a}));
  EXPECT_EQ(boasts.slots.at("m").offer.context_length, 1000);
  EXPECT_EQ(boasts.slots.at("m").offer.family, "gemma4_text");
  EXPECT_EQ(small.slots.at("m").offer.context_length, 500);
  EXPECT_EQ(other.slots.at("m").version, 0);
  EXPECT_EQ(registry.entries().at(0).context_length, 500);
  EXPECT_EQ(registry.entries().at(0).capabilities, std::vector<std::string>{"tools"});
  registry.set_catalog(catalog_of({}));  // the node's own word again
  EXPECT_EQ(boasts.slots.at("m").offer.context_length, 1'000'000);
}

TEST_F(CatalogRouting, OnlyTheCatalogsModelsWhenThatIsSet) {
  ProviderRecord& node = offers("node", a.digest);
  EXPECT_EQ(take(prompt(10)), "node");
  registry.set_catalog(catalog_of({}, true));
  EXPECT_EQ(take(prompt(10)), "none");
  EXPECT_EQ(router.judge(node, "m", {}).reason, gates::Reason::kModelNotServed);
  EXPECT_FALSE(registry.catalog().allows("m").ok());
  registry.set_catalog(catalog_of({a}, true));
  EXPECT_EQ(take(prompt(10)), "node");
}

TEST_F(CatalogRouting, MinimumMemoryAndOverrideReachTheGates) {
  // 141 GB on disk, of which 16 stay resident: docs/admission.md.
  CatalogEntry large = active(entry_of("m", 'a', 141'000'000'000u));
  large.min_memory_bytes = 36 * kGiB;
  const auto node = [&](std::uint64_t gib) -> ProviderRecord& {
    ProviderRecord& one = offers(std::to_string(gib), large.digest, 0, false);
    one.hardware.memory_bytes = gib * kGiB;
    one.hardware.memory_cap_bytes = gates::usable_memory(gib * kGiB);
    one.free_bytes = one.hardware.memory_cap_bytes;
    return one;
  };
  ProviderRecord &n32 = node(32), &n48 = node(48);
  const Router strict(registry, clock, {gates::Mode::kOn, gates::Mode::kOn, gates::Mode::kOn});
  registry.set_catalog(catalog_of({large}));
  EXPECT_EQ(strict.judge(n32, "m", {}).reason, gates::Reason::kTooLarge);
  EXPECT_EQ(strict.judge(n48, "m", {}).reason, gates::Reason::kNoRoomToLoad);
  large.runtime = runtime(R"({"resident_gb":16})");
  registry.set_catalog(catalog_of({large}));
  EXPECT_EQ(strict.judge(n32, "m", {}).reason, gates::Reason::kTooLarge);  // the catalog's word
  EXPECT_EQ(strict.judge(n48, "m", {}).reason, gates::Reason::kNotLoaded);
  // The planner looks through the same gates.
  WarmPool pool(registry, strict, clock, {});
  const std::vector<Wanted> wanted{{"m", 1}};
  const auto orders = pool.plan(wanted);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].provider, &n48);
  // A text for a number changes nothing.
  large.runtime = runtime(R"({"resident_gb":"16"})");
  registry.set_catalog(catalog_of({large}));
  n48.slots.at("m").loading_since.reset();
  EXPECT_EQ(strict.judge(n48, "m", {}).reason, gates::Reason::kNoRoomToLoad);
}

TEST_F(CatalogRouting, ANodesClaimOfItsSizeDoesNotBeatTheOverride) {
  CatalogEntry large = active(entry_of("m", 'a', 141'000'000'000u));
  large.runtime = runtime(R"({"resident_gb":16})");
  ProviderRecord& node = offers("node", large.digest, 0, false, /*resident=*/1);
  registry.set_catalog(catalog_of({large}));
  EXPECT_EQ(node.slots.at("m").facts.size.resident_bytes, 0u);
  EXPECT_EQ(node.slots.at("m").facts.size.listed_bytes, 16'000'000'000u);
}

}  // namespace
}  // namespace flotilla::coordinator
