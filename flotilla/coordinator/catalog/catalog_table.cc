#include "flotilla/coordinator/catalog/catalog_table.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

Status done(Result<std::int64_t> result) {
  if (!result.ok()) return std::move(result).error();
  return ok_status();
}

Result<CatalogEntry> read(const store::Row& row) {
  CatalogEntry entry;
  entry.model = row.text(0);
  entry.version = row.integer(1);
  for (const auto state :
       {CatalogState::kPublished, CatalogState::kActive, CatalogState::kRetired}) {
    if (row.text(2) == to_string(state)) entry.state = state;
  }
  entry.digest = row.text(3);
  entry.source = row.text(4);
  FLOTILLA_TRY(const bj::value files, json::parse(row.text(5)));
  FLOTILLA_TRY(entry.files, download::parse_files(files, "files"));
  entry.family = row.text(6);
  entry.context_length = row.integer(7);
  entry.min_memory_bytes = static_cast<std::uint64_t>(row.integer(8));
  FLOTILLA_TRY(const bj::value capabilities, json::parse(row.text(9)));
  if (capabilities.is_array()) {
    for (const bj::value& item : capabilities.get_array()) {
      if (item.is_string()) entry.capabilities.emplace_back(std::string_view(item.get_string()));
    }
  }
  FLOTILLA_TRY(entry.runtime, read_runtime_parameters(row.text(10)));
  entry.created = row.integer(11);
  entry.changed = row.integer(12);
  return entry;
}

Result<std::vector<CatalogEntry>> entries_of(store::Database& database, const std::string& where,
                                             std::vector<store::Value> parameters) {
  FLOTILLA_TRY(const auto rows,
               database.query("SELECT model, version, state, digest, source, files, family, "
                              "context_length, min_memory_bytes, capabilities, runtime, created, "
                              "changed FROM catalog_models " +
                                  where + " ORDER BY model, version",
                              std::move(parameters)));
  std::vector<CatalogEntry> entries;
  for (const store::Row& row : rows) {
    FLOTILLA_TRY(CatalogEntry entry, read(row));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Status set_state(store::Database& database, const CatalogEntry& entry, CatalogState state,
                 std::int64_t now) {
  return done(
      database.execute("UPDATE catalog_models SET state = :p1, changed = :p2 "
                       "WHERE model = :p3 AND version = :p4",
                       {std::string(to_string(state)), now, entry.model, entry.version}));
}

Status write(store::Database& database, const CatalogEntry& entry, bool is_new) {
  bj::array capabilities;
  for (const std::string& one : entry.capabilities) capabilities.emplace_back(one);
  std::vector<store::Value> values{entry.model,
                                   entry.version,
                                   std::string(to_string(entry.state)),
                                   entry.digest,
                                   entry.source,
                                   bj::serialize(download::render_files(entry.files)),
                                   entry.family,
                                   entry.context_length,
                                   static_cast<std::int64_t>(entry.min_memory_bytes),
                                   bj::serialize(capabilities),
                                   entry.runtime.text,
                                   entry.created,
                                   entry.changed};
  return done(database.execute(
      is_new ? "INSERT INTO catalog_models (model, version, state, digest, source, files, family, "
               "context_length, min_memory_bytes, capabilities, runtime, created, changed) VALUES "
               "(:p1, :p2, :p3, :p4, :p5, :p6, :p7, :p8, :p9, :p10, :p11, :p12, :p13)"
             : "UPDATE catalog_models SET state = :p3, digest = :p4, source = :p5, files = :p6, "
               "family = :p7, context_length = :p8, min_memory_bytes = :p9, capabilities = :p10, "
               "runtime = :p11, created = :p12, changed = :p13 WHERE model = :p1 AND version = :p2",
      std::move(values)));
}

Status activate(store::Database& database, const std::vector<CatalogEntry>& versions,
                const CatalogEntry& chosen, std::int64_t now) {
  for (const CatalogEntry& entry : versions) {
    if (entry.state == CatalogState::kActive && entry.version != chosen.version)
      FLOTILLA_TRY_STATUS(set_state(database, entry, CatalogState::kPublished, now));
  }
  return set_state(database, chosen, CatalogState::kActive, now);
}

Error no_model(const std::string& model) {
  return {ErrorCode::kNotFound, "the catalog has no model '" + model + "'", "model"};
}

Error no_version(const std::string& model, std::int64_t version) {
  return {ErrorCode::kNotFound,
          "the model '" + model + "' has no version " + std::to_string(version), "version"};
}

}  // namespace

Result<std::shared_ptr<const CatalogView>> load_catalog(store::Database& database, bool only) {
  std::vector<CatalogEntry> entries;
  std::map<std::string, std::string> aliases;
  FLOTILLA_TRY_STATUS(database.snapshot([&]() -> Status {
    FLOTILLA_TRY(entries, entries_of(database, "", {}));
    FLOTILLA_TRY(const auto rows, database.query("SELECT alias, model FROM catalog_aliases"));
    for (const store::Row& row : rows) aliases.emplace(row.text(0), row.text(1));
    return ok_status();
  }));
  return std::shared_ptr<const CatalogView>(
      std::make_shared<CatalogView>(only, std::move(entries), std::move(aliases)));
}

Result<CatalogEntry> publish_model(store::Database& database, CatalogEntry entry, bool activate_it,
                                   std::int64_t now) {
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(
        const auto aliases,
        database.query("SELECT model FROM catalog_aliases WHERE alias = :p1", {entry.model}));
    if (!aliases.empty()) {
      return Error{ErrorCode::kAlreadyExists,
                   "'" + entry.model + "' is an alias of '" + aliases[0].text(0) + "'", "model"};
    }
    FLOTILLA_TRY(const auto versions, entries_of(database, "WHERE model = :p1", {entry.model}));
    const CatalogEntry* same = nullptr;
    entry.version = 1;
    for (const CatalogEntry& other : versions) {
      if (other.digest == entry.digest) same = &other;
      entry.version = std::max(entry.version, other.version + 1);
    }
    if (same != nullptr) {
      if (same->state != CatalogState::kRetired) {
        return Error{ErrorCode::kAlreadyExists, "these files are version " +
                                                    std::to_string(same->version) + " of '" +
                                                    entry.model + "' already"};
      }
      entry.version = same->version;
    }
    entry.created = same == nullptr ? now : same->created;
    entry.changed = now;
    entry.state = CatalogState::kPublished;
    FLOTILLA_TRY_STATUS(write(database, entry, same == nullptr));
    if (!activate_it) return ok_status();
    entry.state = CatalogState::kActive;
    return activate(database, versions, entry, now);
  }));
  return entry;
}

Status activate_model(store::Database& database, const std::string& model, std::int64_t version,
                      std::int64_t now) {
  return database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto versions, entries_of(database, "WHERE model = :p1", {model}));
    if (versions.empty()) return no_model(model);
    for (const CatalogEntry& entry : versions) {
      if (entry.version == version) return activate(database, versions, entry, now);
    }
    return no_version(model, version);
  });
}

Result<std::int64_t> retire_model(store::Database& database, const std::string& model,
                                  std::int64_t version, std::int64_t now) {
  std::int64_t count = 0;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto versions, entries_of(database, "WHERE model = :p1", {model}));
    if (versions.empty()) return no_model(model);
    bool found = false;
    for (const CatalogEntry& entry : versions) {
      if (version != 0 && entry.version != version) continue;
      found = true;
      if (entry.state == CatalogState::kRetired) continue;
      ++count;
      FLOTILLA_TRY_STATUS(set_state(database, entry, CatalogState::kRetired, now));
    }
    if (!found) return no_version(model, version);
    return ok_status();
  }));
  return count;
}

Status set_alias(store::Database& database, const std::string& alias, const std::string& model,
                 std::int64_t now) {
  FLOTILLA_TRY_STATUS(download::check_model_name(alias));
  return database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto taken, entries_of(database, "WHERE model = :p1", {alias}));
    if (!taken.empty()) {
      return Error{ErrorCode::kAlreadyExists, "'" + alias + "' is the name of a model", "alias"};
    }
    FLOTILLA_TRY(const auto versions, entries_of(database, "WHERE model = :p1", {model}));
    if (versions.empty()) return no_model(model);
    auto changed = database.execute("UPDATE catalog_aliases SET model = :p2 WHERE alias = :p1",
                                    {alias, model});
    if (!changed.ok()) return std::move(changed).error();
    if (*changed > 0) return ok_status();
    return done(database.execute(
        "INSERT INTO catalog_aliases (alias, model, created) VALUES (:p1, :p2, :p3)",
        {alias, model, now}));
  });
}

Status drop_alias(store::Database& database, const std::string& alias) {
  auto gone = database.execute("DELETE FROM catalog_aliases WHERE alias = :p1", {alias});
  if (!gone.ok()) return std::move(gone).error();
  if (*gone == 0) return Error{ErrorCode::kNotFound, "there is no alias '" + alias + "'", "alias"};
  return ok_status();
}

}  // namespace flotilla::coordinator
