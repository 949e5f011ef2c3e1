#include "flotilla/coordinator/money/server_state.h"

namespace flotilla::coordinator {

Result<ServerState> read_server_state(store::Database& database) {
  FLOTILLA_TRY(const auto rows, database.query("SELECT name, value FROM server_state"));
  ServerState state;
  for (const store::Row& row : rows) {
    const std::string name = row.text(0);
    const std::int64_t value = row.integer(1);
    if (name == "run") state.run = value;
    if (name == "run_began") state.run_began = value;
    if (name == "alive") state.alive = value;
    if (name == "recovery_s") state.recovery_s = value;
    if (name == "carried_before") state.carried_before = value;
  }
  return state;
}

Status write_server_state(store::Database& database, std::string_view name, std::int64_t value) {
  auto done = database.execute(
      "INSERT INTO server_state (name, value) VALUES (:p1, :p2) "
      "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      {std::string(name), value});
  if (!done.ok()) return std::move(done).error();
  return ok_status();
}

}  // namespace flotilla::coordinator
