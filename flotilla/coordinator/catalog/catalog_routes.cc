#include "flotilla/coordinator/catalog/catalog_routes.h"
#include "flotilla/base/model_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "flotilla/coordinator/admin/query.h"
#include "flotilla/coordinator/catalog/catalog_table.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/download/fetch.h"
#include "flotilla/json/json.h"
#include "flotilla/log/log.h"
#include "flotilla/serving/access.h"
#include "flotilla/serving/replies.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

using Reply = serving::ExtraRoute::Reply;

constexpr std::size_t kMaxBody = 8u << 20, kMaxText = 200, kMaxCapabilities = 32, kMaxSource = 4096;
constexpr std::int64_t kMaxContext = 1'000'000'000;
constexpr std::int64_t kMaxMachine = std::int64_t{1} << 50;

// What a change answers, on the bank's thread.
using Change =
    std::function<Result<bj::object>(store::Database&, const bj::value& body, std::int64_t now)>;

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

Result<bj::value> parse_body(const std::string& text, const std::vector<std::string_view>& known) {
  FLOTILLA_TRY(bj::value body, json::parse(text, {.max_bytes = kMaxBody, .max_depth = 8}));
  if (!body.is_object()) return Error{ErrorCode::kInvalidArgument, "the body is a JSON object"};
  for (const auto& member : body.get_object()) {
    if (std::find(known.begin(), known.end(), std::string_view(member.key())) == known.end())
      return Error{ErrorCode::kInvalidArgument, "unknown field", std::string(member.key())};
  }
  return body;
}

Status check_on_disk(const CatalogEntry& entry) {
  for (const auto& file : entry.files) {
    struct stat info {};
    const std::string path = entry.source + "/" + file.path;
    // A key of this interface is not to read what else is on the machine.
    const std::string_view name = std::string_view(file.path).substr(file.path.rfind('/') + 1);
    if (!is_model_file(name)) {
      return Error{ErrorCode::kInvalidArgument, "'" + file.path + "' is no file of a model",
                   "files"};
    }
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
        static_cast<std::uint64_t>(info.st_size) != file.size) {
      return Error{ErrorCode::kInvalidArgument,
                   "the coordinator finds no file " + path + " of " + std::to_string(file.size) +
                       " bytes; the folder must be on its machine and readable for it",
                   "source"};
    }
  }
  return ok_status();
}

Result<CatalogEntry> parse_entry(const bj::value& body) {
  CatalogEntry entry;
  FLOTILLA_TRY(entry.model, json::require_string(body, "model"));
  FLOTILLA_TRY(entry.source, json::require_string(body, "source"));
  FLOTILLA_TRY(entry.digest, json::require_string(body, "digest"));
  const bj::value* files = json::find(body, "files");
  if (files == nullptr) return Error{ErrorCode::kInvalidArgument, "files is missing", "files"};
  FLOTILLA_TRY(entry.files, download::parse_files(*files, "files"));
  const download::Manifest manifest{entry.model, 0, entry.digest, entry.files};
  if (Status sound = download::check(manifest); !sound.ok()) {
    Error error = std::move(sound).error();
    if (error.code == ErrorCode::kDataLoss) error.code = ErrorCode::kInvalidArgument;
    return error;
  }
  FLOTILLA_TRY(const auto family, json::get_string(body, "family"));
  entry.family = family.value_or("");
  if (entry.family.size() > kMaxText || entry.source.size() > kMaxSource)
    return Error{ErrorCode::kTooLarge, "family or source is too long"};
  FLOTILLA_TRY(const auto context, json::get_int(body, "context_length", 0, kMaxContext));
  entry.context_length = context.value_or(0);
  FLOTILLA_TRY(const auto memory, json::get_int(body, "min_memory_bytes", 0, kMaxMachine));
  entry.min_memory_bytes = static_cast<std::uint64_t>(memory.value_or(0));
  if (const bj::value* list = json::find(body, "capabilities")) {
    const Error bad{
        ErrorCode::kInvalidArgument,
        "capabilities is a list of at most " + std::to_string(kMaxCapabilities) + " words",
        "capabilities"};
    if (!list->is_array() || list->get_array().size() > kMaxCapabilities) return bad;
    for (const bj::value& item : list->get_array()) {
      if (!item.is_string() || !download::check_model_name(item.get_string()).ok()) return bad;
      entry.capabilities.emplace_back(std::string_view(item.get_string()));
    }
  }
  if (const bj::value* runtime = json::find(body, "runtime_parameters")) {
    FLOTILLA_TRY(entry.runtime, read_runtime_parameters(*runtime));
  }
  if (entry.is_folder()) {
    for (auto& file : entry.files) file.url.clear();
    FLOTILLA_TRY_STATUS(check_on_disk(entry));
    return entry;
  }
  if (!is_url(entry.source)) {
    return Error{ErrorCode::kInvalidArgument,
                 "source is the absolute path of a folder, or an http or https URL", "source"};
  }
  for (const auto& file : entry.files) {
    if (!is_url(file.url))
      return Error{ErrorCode::kInvalidArgument, "each file of a URL has its own url", "files"};
  }
  return entry;
}

Result<bj::object> publish(store::Database& database, const bj::value& body, std::int64_t now,
                           bool only) {
  FLOTILLA_TRY(CatalogEntry entry, parse_entry(body));
  FLOTILLA_TRY(const auto activate, json::get_bool(body, "activate"));
  FLOTILLA_TRY(entry, publish_model(database, std::move(entry), activate.value_or(false), now));
  for (const std::string& ignored : entry.runtime.ignored)
    log::warn("runtime_parameter_ignored", {{"model", entry.model}, {"parameter", ignored}});
  log::info("admin_model_published", {{"model", entry.model},
                                      {"version", entry.version},
                                      {"state", to_string(entry.state)},
                                      {"digest", entry.digest},
                                      {"source", entry.source},
                                      {"bytes", entry.bytes()}});
  return render_entry(entry, CatalogView(only), false);
}

Result<bj::object> activate(store::Database& database, const bj::value& body, std::int64_t now) {
  FLOTILLA_TRY(const std::string model, json::require_string(body, "model"));
  FLOTILLA_TRY(const std::int64_t version, json::require_int(body, "version", 1, 1'000'000'000));
  FLOTILLA_TRY_STATUS(activate_model(database, model, version, now));
  log::info("admin_model_activated", {{"model", model}, {"version", version}});
  return bj::object{{"model", model}, {"version", version}, {"state", "active"}};
}

Result<bj::object> retire(store::Database& database, const bj::value& body, std::int64_t now) {
  FLOTILLA_TRY(const std::string model, json::require_string(body, "model"));
  FLOTILLA_TRY(const auto version, json::get_int(body, "version", 1, 1'000'000'000));
  FLOTILLA_TRY(const std::int64_t count, retire_model(database, model, version.value_or(0), now));
  log::info("admin_model_retired",
            {{"model", model}, {"version", version.value_or(0)}, {"versions", count}});
  return bj::object{{"model", model}, {"retired", count}};
}

Result<bj::object> alias(store::Database& database, const bj::value& body, std::int64_t now) {
  FLOTILLA_TRY(const std::string name, json::require_string(body, "alias"));
  FLOTILLA_TRY(const auto model, json::get_string(body, "model"));
  if (model) {
    FLOTILLA_TRY_STATUS(set_alias(database, name, *model, now));
  } else {
    FLOTILLA_TRY_STATUS(drop_alias(database, name));
  }
  log::info("admin_alias_set", {{"alias", name}, {"model", model.value_or("")}});
  return bj::object{{"alias", name}, {"model", model ? bj::value(*model) : bj::value(nullptr)}};
}

// Runs `change`, puts the new view in force, answers.
void run(const CatalogDesk& desk, std::string body, const Reply& reply, bool only,
         std::vector<std::string_view> known, Change change) {
  const bool queued =
      desk.bank.post([desk, body = std::move(body), reply, only, known = std::move(known),
                      change = std::move(change)](store::Database& database) {
        const auto work = [&]() -> Result<bj::object> {
          FLOTILLA_TRY(const bj::value parsed, parse_body(body, known));
          return change(database, parsed, desk.clock.unix_seconds());
        };
        Result<bj::object> answer = work();
        if (!answer.ok()) return reply(serving::error_reply(answer.error()));
        auto view = load_catalog(database, only);
        if (!view.ok()) {
          log::error("catalog_not_loaded", {{"reason", view.error().message}});
          return reply(serving::error_reply(view.error()));
        }
        desk.catalog.set(*view, [reply, text = bj::serialize(*answer)] {
          reply(serving::json_reply(200, text));
        });
      });
  if (!queued) {
    reply(serving::error_reply(
        {ErrorCode::kUnavailable, "the database has too much to do; try again"}));
  }
}

Status may_download(const CatalogDesk& desk, const net::HttpRequest& request) {
  if (Status admin = desk.admins.check(request.headers); admin.ok() || !desk.downloads_for_keys)
    return admin;
  const serving::Credentials credentials = serving::read_credentials(request.headers);
  if (credentials.malformed)
    return Error{ErrorCode::kUnauthenticated, "the API key is empty or malformed"};
  auto caller = desk.keys.authenticate(credentials.key, desk.clock.unix_seconds());
  if (!caller.ok()) return std::move(caller).error();
  return ok_status();
}

// The version asked for; without one the active one, else the newest that is published.
Result<const CatalogEntry*> find_version(const CatalogView& view, const std::string& query) {
  const auto name = query_value(query, "model");
  if (!name || name->empty())
    return Error{ErrorCode::kInvalidArgument, "model is missing", "model"};
  const std::string& model = view.resolve(*name);
  const CatalogEntry* found = nullptr;
  if (const auto text = query_value(query, "version")) {
    std::int64_t version = 0;
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), version);
    if (parsed.ec != std::errc{} || parsed.ptr != text->data() + text->size())
      return Error{ErrorCode::kInvalidArgument, "version is a whole number", "version"};
    found = view.version(model, version);
  } else if ((found = view.active(model)) == nullptr) {
    for (const CatalogEntry& entry : view.entries()) {
      if (entry.model == model && entry.state == CatalogState::kPublished) found = &entry;
    }
  }
  if (found == nullptr || found->state == CatalogState::kRetired) {
    return Error{ErrorCode::kNotFound, "the catalog offers no such version of '" + *name + "'",
                 "model"};
  }
  return found;
}

net::HttpResponse manifest(const CatalogView& view, const std::string& query) {
  const auto entry = find_version(view, query);
  if (!entry.ok()) return serving::error_reply(entry.error());
  download::Manifest out{(*entry)->model, (*entry)->version, (*entry)->digest, (*entry)->files};
  if ((*entry)->is_folder()) {
    for (auto& file : out.files)
      file.url = "/v1/catalog/file?digest=" + out.digest +
                 "&path=" + download::escape_path(file.path) +
                 "&model=" + download::escape_path(out.model);
  }
  return serving::json_reply(200, download::render_manifest(out));
}

void serve_file(const CatalogDesk& desk, const std::shared_ptr<net::HttpExchange>& exchange,
                const Reply& reply, const Reply& begin) {
  const std::string& query = exchange->request().query;
  const auto digest = query_value(query, "digest"), path = query_value(query, "path");
  const Catalog::View view = desk.catalog.view();
  const auto model = query_value(query, "model");  // several may have the same files
  const CatalogEntry* entry = nullptr;
  if (digest) entry = model ? view->find(*model, *digest) : view->folder_of(*digest);
  if (entry != nullptr && path && entry->is_folder() && entry->state != CatalogState::kRetired) {
    for (const auto& file : entry->files) {
      if (file.path != *path) continue;
      return desk.files.serve({entry->source + "/" + file.path, file.size, '"' + file.sha256 + '"'},
                              exchange, reply, begin);
    }
  }
  reply(serving::error_reply({ErrorCode::kNotFound, "the catalog has no such file"}));
}

}  // namespace

bj::object render_entry(const CatalogEntry& entry, const CatalogView& view, bool with_files) {
  bj::array capabilities, ignored, aliases;
  for (const std::string& one : entry.capabilities) capabilities.emplace_back(one);
  for (const std::string& one : entry.runtime.ignored) ignored.emplace_back(one);
  for (const auto& [name, model] : view.aliases()) {
    if (model == entry.model) aliases.emplace_back(name);
  }
  const auto runtime = json::parse(entry.runtime.text);
  bj::object out{
      {"object", "catalog_model"},
      {"model", entry.model},
      {"version", entry.version},
      {"state", to_string(entry.state)},
      {"digest", entry.digest},
      {"source", entry.source},
      {"bytes", entry.bytes()},
      {"num_files", entry.files.size()},
      {"family", entry.family},
      {"context_length", entry.context_length},
      {"capabilities", std::move(capabilities)},
      {"min_memory_bytes", entry.min_memory_bytes},
      {"resident_bytes", entry.runtime.resident_bytes ? bj::value(*entry.runtime.resident_bytes)
                                                      : bj::value(nullptr)},
      {"runtime_parameters", runtime.ok() ? *runtime : bj::value(nullptr)},
      {"ignored", std::move(ignored)},
      {"aliases", std::move(aliases)},
      {"created", entry.created},
      {"changed", entry.changed}};
  if (with_files) out["files"] = download::render_files(entry.files);
  return out;
}

std::vector<serving::ExtraRoute> catalog_routes(const CatalogDesk& desk) {
  const bool only = desk.catalog.view()->only();
  const auto admin = [desk](const net::HttpRequest& request) {
    return desk.admins.check(request.headers);
  };
  const auto change = [&](std::string path, std::string name, std::vector<std::string_view> known,
                          Change what) {
    return serving::ExtraRoute{"POST", std::move(path), std::move(name), admin,
                               [desk, only, known = std::move(known), what = std::move(what)](
                                   const net::HttpRequest& request, Reply reply) {
                                 run(desk, request.body, reply, only, known, what);
                               }};
  };
  std::vector<serving::ExtraRoute> routes;
  routes.push_back(
      {"GET", "/v1/admin/models", "admin_models", admin,
       [desk](const net::HttpRequest& request, Reply reply) {
         const Catalog::View view = desk.catalog.view();
         const auto model = query_value(request.query, "model");
         bj::array data;
         for (const CatalogEntry& entry : view->entries()) {
           if (!model || entry.model == view->resolve(*model))
             data.push_back(render_entry(entry, *view, model.has_value()));
         }
         reply(serving::json_reply(
             200, bj::serialize(bj::object{{"object", "list"}, {"data", std::move(data)}})));
       }});
  routes.push_back(change("/v1/admin/models", "admin_models",
                          {"model", "source", "digest", "files", "family", "context_length",
                           "capabilities", "min_memory_bytes", "runtime_parameters", "activate"},
                          [only](store::Database& database, const bj::value& body,
                                 std::int64_t now) { return publish(database, body, now, only); }));
  routes.push_back(
      change("/v1/admin/models/activate", "admin_models_activate", {"model", "version"}, activate));
  routes.push_back(
      change("/v1/admin/models/retire", "admin_models_retire", {"model", "version"}, retire));
  routes.push_back(
      change("/v1/admin/models/alias", "admin_models_alias", {"alias", "model"}, alias));
  const auto admit = [desk](const net::HttpRequest& request) {
    return may_download(desk, request);
  };
  routes.push_back({"GET", "/v1/catalog/manifest", "catalog_manifest", admit,
                    [desk](const net::HttpRequest& request, Reply reply) {
                      reply(manifest(*desk.catalog.view(), request.query));
                    }});
  routes.push_back({"GET",
                    "/v1/catalog/file",
                    "catalog_file",
                    admit,
                    {},
                    [desk](const std::shared_ptr<net::HttpExchange>& exchange, const Reply& reply,
                           const Reply& begin) { serve_file(desk, exchange, reply, begin); }});
  return routes;
}

}  // namespace flotilla::coordinator
