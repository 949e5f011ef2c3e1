#include "flotilla/coordinator/schema.h"

namespace flotilla::coordinator {

std::span<const store::Migration> schema() {
  static const std::vector<store::Migration> kSteps{
      {1,
       "keys and nodes",
       {
           // hash: hex BLAKE2b-256 of the key. prefix: its first characters, for people. Times are
           // unix seconds.
           "CREATE TABLE api_keys ("
           "  id BIGINT PRIMARY KEY,"
           "  name TEXT NOT NULL,"
           "  prefix TEXT NOT NULL,"
           "  hash TEXT NOT NULL UNIQUE,"
           "  created BIGINT NOT NULL,"
           "  revoked BIGINT)",
           // invite_key: public half of the join token's secret. public_key: the node's own, once
           // it has joined.
           "CREATE TABLE nodes ("
           "  name TEXT PRIMARY KEY,"
           "  invite_key TEXT NOT NULL,"
           "  public_key TEXT,"
           "  invited BIGINT NOT NULL,"
           "  joined BIGINT,"
           "  revoked BIGINT)",
           "CREATE TABLE change_counts (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
           "INSERT INTO change_counts (name, value) VALUES ('access', 1)",
       }},
      {2,
       "models that nodes have served",
       {
           "CREATE TABLE models_seen (name TEXT PRIMARY KEY, last_seen BIGINT NOT NULL)",
       }},
  };
  return kSteps;
}

Result<store::Database> open_database(const std::string& path,
                                      const store::DatabaseOptions& options) {
  FLOTILLA_TRY(store::Database database, store::Database::open(path, options));
  if (Status migrated = store::migrate(database, schema()); !migrated.ok()) {
    return Error{migrated.error().code, path + ": " + migrated.error().message};
  }
  return database;
}

Status note_change(store::Database& database) {
  auto done = database.execute("UPDATE change_counts SET value = value + 1 WHERE name = 'access'");
  if (!done.ok()) return std::move(done).error();
  return ok_status();
}

Result<std::int64_t> change_count(store::Database& database) {
  FLOTILLA_TRY(const auto rows,
               database.query("SELECT value FROM change_counts WHERE name = 'access'"));
  return rows.empty() ? 0 : rows[0].integer(0);
}

}  // namespace flotilla::coordinator
