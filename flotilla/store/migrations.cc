#include "flotilla/store/migrations.h"

#include "flotilla/base/check.h"

namespace flotilla::store {
namespace {

Status create_version_table(Database& database) {
  auto made = database.execute(
      "CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY, name TEXT NOT "
      "NULL)");
  if (!made.ok()) return std::move(made).error();
  return ok_status();
}

Status apply(Database& database, const Migration& migration) {
  for (const std::string_view sql : migration.statements) {
    if (auto done = database.execute(sql); !done.ok()) {
      return Error{done.error().code, "migration " + std::to_string(migration.version) + " (" +
                                          std::string(migration.name) +
                                          "): " + done.error().message};
    }
  }
  auto recorded = database.execute("INSERT INTO schema_versions (version, name) VALUES (:p1, :p2)",
                                   {std::int64_t{migration.version}, std::string(migration.name)});
  if (!recorded.ok()) return std::move(recorded).error();
  return ok_status();
}

}  // namespace

Result<int> schema_version(Database& database) {
  FLOTILLA_TRY_STATUS(create_version_table(database));
  FLOTILLA_TRY(const auto rows, database.query("SELECT MAX(version) FROM schema_versions"));
  return rows.empty() ? 0 : static_cast<int>(rows[0].integer(0));
}

Status migrate(Database& database, std::span<const Migration> migrations) {
  int last = 0;
  for (const Migration& m : migrations)
    FLOTILLA_CHECK(m.version == ++last, "migrations are numbered 1, 2, 3, ...");
  return database.transaction([&]() -> Status {
    FLOTILLA_TRY(const int present, schema_version(database));
    if (present > last) {
      return Error{ErrorCode::kUnsupported, "the database has schema version " +
                                                std::to_string(present) + ", this program knows " +
                                                std::to_string(last) +
                                                "; it was written by a later version"};
    }
    for (const Migration& m : migrations) {
      if (m.version > present) FLOTILLA_TRY_STATUS(apply(database, m));
    }
    return ok_status();
  });
}

}  // namespace flotilla::store
