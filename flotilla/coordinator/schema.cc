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
      {3,
       "money",
       {
           // Amounts in micro-units. reserved: the sum over the account's open jobs.
           "CREATE TABLE accounts ("
           "  id BIGINT PRIMARY KEY,"
           "  name TEXT NOT NULL UNIQUE,"
           "  created BIGINT NOT NULL,"
           "  balance BIGINT NOT NULL DEFAULT 0,"
           "  reserved BIGINT NOT NULL DEFAULT 0 CHECK (reserved >= 0),"
           "  requests_per_minute BIGINT,"
           "  input_tokens_per_minute BIGINT,"
           "  output_tokens_per_minute BIGINT,"
           "  CHECK (id = 2 OR balance >= reserved))",
           "INSERT INTO accounts (id, name, created) VALUES (1, 'default', 0)",
           "INSERT INTO accounts (id, name, created) VALUES (2, '@outside', 0)",
           "INSERT INTO accounts (id, name, created) VALUES (3, '@platform', 0)",
           // spent: what its jobs were charged.
           "ALTER TABLE api_keys ADD COLUMN account BIGINT NOT NULL DEFAULT 1",
           "CREATE INDEX api_keys_account ON api_keys (account)",
           "ALTER TABLE api_keys ADD COLUMN expires BIGINT",
           "ALTER TABLE api_keys ADD COLUMN spend_limit BIGINT",
           "ALTER TABLE api_keys ADD COLUMN spent BIGINT NOT NULL DEFAULT 0",
           "ALTER TABLE api_keys ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0",
           "ALTER TABLE api_keys ADD COLUMN requests_per_minute BIGINT",
           "ALTER TABLE api_keys ADD COLUMN input_tokens_per_minute BIGINT",
           "ALTER TABLE api_keys ADD COLUMN output_tokens_per_minute BIGINT",
           // The account that the node earns for; without one the operator's.
           "ALTER TABLE nodes ADD COLUMN owner BIGINT",
           // Micro-units per million tokens. since: when it begins to hold.
           "CREATE TABLE prices ("
           "  id BIGINT PRIMARY KEY,"
           "  model TEXT NOT NULL,"
           "  input BIGINT NOT NULL,"
           "  cached_input BIGINT NOT NULL,"
           "  output BIGINT NOT NULL,"
           "  since BIGINT NOT NULL,"
           "  created BIGINT NOT NULL)",
           // One row per job that is paid for, made before it starts: the reservation. state: 0
           // open, 1 settled, 2 refunded whole. run: which start of the server made it. nodes: ids
           // of those that it was given to, with a space between; only they are asked about it.
           "CREATE TABLE jobs ("
           "  id TEXT PRIMARY KEY,"
           "  run BIGINT NOT NULL,"
           "  account BIGINT NOT NULL,"
           "  api_key BIGINT NOT NULL,"
           "  model TEXT NOT NULL,"
           "  streamed BIGINT NOT NULL,"
           "  price BIGINT NOT NULL,"
           "  state BIGINT NOT NULL DEFAULT 0,"
           "  reserved BIGINT NOT NULL,"
           "  created BIGINT NOT NULL,"
           "  ended BIGINT,"
           "  outcome TEXT,"
           "  prompt_tokens BIGINT NOT NULL DEFAULT 0,"
           "  cached_tokens BIGINT NOT NULL DEFAULT 0,"
           "  output_tokens BIGINT NOT NULL DEFAULT 0,"
           "  charged BIGINT NOT NULL DEFAULT 0,"
           "  nodes TEXT NOT NULL DEFAULT '')",
           "CREATE INDEX jobs_open ON jobs (created) WHERE state = 0",
           "CREATE INDEX jobs_ended ON jobs (ended)",
           "CREATE TABLE ledger_transactions ("
           "  id BIGINT PRIMARY KEY,"
           "  kind TEXT NOT NULL,"
           "  time BIGINT NOT NULL,"
           "  reference TEXT NOT NULL UNIQUE,"
           "  note TEXT NOT NULL)",
           "CREATE TABLE ledger_entries ("
           "  transaction_id BIGINT NOT NULL,"
           "  account BIGINT NOT NULL,"
           "  amount BIGINT NOT NULL,"
           "  PRIMARY KEY (transaction_id, account))",
           // day: days since 1970-01-01, UTC.
           "CREATE TABLE usage_days ("
           "  day BIGINT NOT NULL,"
           "  account BIGINT NOT NULL,"
           "  api_key BIGINT NOT NULL,"
           "  model TEXT NOT NULL,"
           "  jobs BIGINT NOT NULL,"
           "  prompt_tokens BIGINT NOT NULL,"
           "  cached_tokens BIGINT NOT NULL,"
           "  output_tokens BIGINT NOT NULL,"
           "  charged BIGINT NOT NULL,"
           "  PRIMARY KEY (day, account, api_key, model))",
           // 'run': number of the last start; 'run_began', 'alive': unix seconds of it, and of its
           // last sign of life; 'carried_before': older ledger rows were summed up.
           "CREATE TABLE server_state (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
       }},
      {4,
       "how far open streams have come",
       {
           // delivered: tokens that the client was handed, as far as was known a moment ago.
           "ALTER TABLE jobs ADD COLUMN delivered BIGINT NOT NULL DEFAULT 0",
       }},
      {5,
       "catalog of models",
       {
           // state: published, active, retired. source: a folder of this machine, or a URL. files,
           // capabilities, runtime: JSON.
           "CREATE TABLE catalog_models ("
           "  model TEXT NOT NULL,"
           "  version BIGINT NOT NULL,"
           "  state TEXT NOT NULL,"
           "  digest TEXT NOT NULL,"
           "  source TEXT NOT NULL,"
           "  files TEXT NOT NULL,"
           "  family TEXT NOT NULL,"
           "  context_length BIGINT NOT NULL,"
           "  min_memory_bytes BIGINT NOT NULL,"
           "  capabilities TEXT NOT NULL,"
           "  runtime TEXT NOT NULL,"
           "  created BIGINT NOT NULL,"
           "  changed BIGINT NOT NULL,"
           "  PRIMARY KEY (model, version),"
           "  UNIQUE (model, digest))",
           "CREATE UNIQUE INDEX catalog_models_active ON catalog_models (model) "
           "WHERE state = 'active'",
           "CREATE TABLE catalog_aliases ("
           "  alias TEXT PRIMARY KEY,"
           "  model TEXT NOT NULL,"
           "  created BIGINT NOT NULL)",
       }},
  };
  return kSteps;
}

Result<store::Database> open_database(const std::string& path,
                                      const store::DatabaseOptions& options) {
  FLOTILLA_TRY(store::Database database, store::Database::open(path, options));
  if (Status migrated = store::migrate(database, schema()); !migrated.ok()) {
    return Error{migrated.error().code,
                 store::display_name(path) + ": " + migrated.error().message};
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
