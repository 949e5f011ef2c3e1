#include "flotilla/coordinator/catalog/catalog_routes.h"

#include <boost/json.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>

#include "flotilla/api/openapi.h"
#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/coordinator/catalog/catalog_table.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/coordinator/money/testing.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr const char* kAdminKey = "an-admin-key-of-the-test";

class CatalogRoutes : public Books {
 protected:
  CatalogRoutes() {
    KeyOrder order{.name = "k", .account = AccountId{1}, .expires = {}, .spend_limit = {}};
    user_key = create_key(database, order, kStart)->key;
    keys.load(*list_keys(database));
    bank = std::move(*Bank::open(open(), clock, {}, nullptr));
    routes = catalog_routes({*bank, catalog, files, keys, admins, clock});
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << "{}";
  }
  ~CatalogRoutes() override { std::filesystem::remove_all(folder); }
  std::pair<unsigned, bj::value> call(const std::string& method, const std::string& path,
                                      const std::string& body = "", const std::string& query = "",
                                      const std::string& key = kAdminKey) {
    for (const serving::ExtraRoute& route : routes) {
      if (route.method != method || !serving::path_matches(route.path, path)) continue;
      net::HttpRequest request{.method = method, .path = path, .query = query, .peer = {}};
      request.body = body;
      request.headers.add("Authorization", "Bearer " + key);
      if (!route.admit(request).ok()) return {401, nullptr};
      std::promise<net::HttpResponse> answer;
      route.handle(request, [&](net::HttpResponse got) { answer.set_value(std::move(got)); });
      const net::HttpResponse got = answer.get_future().get();
      auto parsed = json::parse(got.body);
      EXPECT_TRUE(parsed.ok()) << got.body;
      return {got.status, parsed.ok() ? *parsed : bj::value()};
    }
    ADD_FAILURE() << method << " " << path;
    return {};
  }
  bj::object order(const std::string& model = "m") const {
    Sha256 sum;
    sum.update("{}");
    const std::vector<download::ManifestFile> list{{"config.json", 2, to_hex(sum.finish()), {}}};
    return {{"model", model},
            {"source", folder},
            {"digest", download::digest_of(list)},
            {"files", download::render_files(list)}};
  }

  FakeClock clock;
  const std::string folder =
      ::testing::TempDir() + "/flotilla catalog " + std::to_string(::getpid());
  std::string user_key;
  ApiKeyStore keys;
  const AdminAccess admins{kAdminKey};
  Catalog catalog{false};
  FileServer files{1};
  std::unique_ptr<Bank> bank;
  std::vector<serving::ExtraRoute> routes;
};
INSTANTIATE_TEST_SUITE_P(Backends, CatalogRoutes, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(CatalogRoutes, PublishActivateRetire) {
  bj::object body = order();
  body["runtime_parameters"] = bj::object{{"resident_gb", "sixteen"}};
  body["context_length"] = 4096;
  auto [status, made] = call("POST", "/v1/admin/models", bj::serialize(body));
  ASSERT_EQ(status, 200u) << bj::serialize(made);
  EXPECT_EQ(made.at("state"), "published");
  EXPECT_EQ(made.at("resident_bytes"), bj::value(nullptr));
  EXPECT_EQ(made.at("ignored").as_array().size(), 1u);  // and it says so
  EXPECT_EQ(catalog.view()->active("m"), nullptr);
  EXPECT_EQ(call("POST", "/v1/admin/models/activate", R"({"model":"m","version":1})").first, 200u);
  EXPECT_NE(catalog.view()->active("m"), nullptr);
  EXPECT_EQ(call("POST", "/v1/admin/models/alias", R"({"alias":"fast","model":"m"})").first, 200u);
  const auto shown = call("GET", "/v1/admin/models", "", "model=fast").second.at("data").at(0);
  EXPECT_EQ(shown.at("aliases").at(0), "fast");
  EXPECT_EQ(shown.at("files").at(0).at("path"), "config.json");
  EXPECT_EQ(call("POST", "/v1/admin/models/retire", R"({"model":"m"})").second.at("retired"), 1);
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=m").first, 404u);
  // What another server of this database would load.
  EXPECT_EQ((*load_catalog(database, false))->entries().size(), 1u);
}

TEST_P(CatalogRoutes, RefuseWhatDoesNotFitTogether) {
  const auto status = [&](const char* field, bj::value value) {
    bj::object body = order();
    body[field] = std::move(value);
    return call("POST", "/v1/admin/models", bj::serialize(body)).first;
  };
  EXPECT_EQ(status("digest", bj::string(64, '0')), 400u);
  EXPECT_EQ(status("source", "relative/folder"), 400u);
  EXPECT_EQ(status("source", "/nowhere/at/all"), 400u);
  EXPECT_EQ(status("source", "https://example.com/m"), 400u);  // files without URLs
  EXPECT_EQ(status("model", "../m"), 400u);
  EXPECT_EQ(status("files", bj::array{}), 400u);
  EXPECT_EQ(status("context_length", -1), 400u);
  EXPECT_EQ(status("capabilities", bj::array{1}), 400u);
  EXPECT_EQ(status("runtime_parameters", "x"), 400u);
  EXPECT_EQ(status("surprise", 1), 400u);
  EXPECT_TRUE(catalog.view()->entries().empty());
  EXPECT_EQ(call("POST", "/v1/admin/models/activate", R"({"model":"m","version":1})").first, 404u);
}

TEST_P(CatalogRoutes, OnlyFilesOfModelsCanBePublished) {
  for (const char* name : {"fleet.sqlite", "identity.key", ".hidden/../x", ".secret.safetensors"}) {
    bj::object body = order();
    Sha256 sum;
    sum.update("{}");
    std::ofstream(std::string(body.at("source").as_string()) + "/" + name) << "{}";
    const std::vector<download::ManifestFile> list{{name, 2, to_hex(sum.finish()), {}}};
    body["digest"] = download::digest_of(list);
    body["files"] = bj::array{bj::object{{"path", name}, {"size", 2}, {"sha256", list[0].sha256}}};
    EXPECT_EQ(call("POST", "/v1/admin/models", bj::serialize(body)).first, 400u) << name;
  }
  EXPECT_TRUE(catalog.view()->entries().empty());
}

TEST_P(CatalogRoutes, TheManifestIsForWhoeverHasAKeyAndMaySayWhereFilesAre) {
  ASSERT_EQ(call("POST", "/v1/admin/models", bj::serialize(order())).first, 200u);
  const auto [status, body] = call("GET", "/v1/catalog/manifest", "", "model=m", user_key);
  ASSERT_EQ(status, 200u);
  const auto read = download::parse_manifest(bj::serialize(body));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->version, 1);
  EXPECT_TRUE(read->files[0].url.starts_with("/v1/catalog/file?digest=" + read->digest));
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=m", "flt-stranger-key").first, 401u);
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=x", user_key).first, 404u);
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=m&version=2", user_key).first, 404u);
  EXPECT_EQ(call("POST", "/v1/admin/models", "{}", "", user_key).first, 401u);
  routes = catalog_routes({*bank, catalog, files, keys, admins, clock, false});
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=m", user_key).first, 401u);
  EXPECT_EQ(call("GET", "/v1/catalog/manifest", "", "model=m").first, 200u);
}

TEST_P(CatalogRoutes, TheDescriptionListsEveryRouteAndNoOther) {
  const bj::value document = *json::parse(api::openapi_document());
  std::set<std::string> described, served;
  for (const auto& path : document.at("paths").as_object()) {
    const std::string name(path.key());
    if (!name.starts_with("/v1/admin/models") && !name.starts_with("/v1/catalog/")) continue;
    for (const auto& method : path.value().as_object()) {
      std::string verb(method.key());
      for (char& c : verb) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      described.insert(verb + " " + name);
    }
  }
  for (const serving::ExtraRoute& route : routes) served.insert(route.method + " " + route.path);
  EXPECT_EQ(described, served);
}

}  // namespace
}  // namespace flotilla::coordinator
