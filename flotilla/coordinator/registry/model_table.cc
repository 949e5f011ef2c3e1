#include "flotilla/coordinator/registry/model_table.h"

namespace flotilla::coordinator {

Result<std::vector<std::string>> list_seen_models(store::Database& database, std::int64_t since) {
  FLOTILLA_TRY(
      const auto rows,
      database.query("SELECT name FROM models_seen WHERE last_seen >= :p1 ORDER BY name", {since}));
  std::vector<std::string> names;
  for (const store::Row& row : rows) names.push_back(row.text(0));
  return names;
}

Status note_seen_models(store::Database& database, const std::vector<std::string>& names,
                        std::int64_t now) {
  return database.transaction([&]() -> Status {
    for (const std::string& name : names) {
      auto changed =
          database.execute("UPDATE models_seen SET last_seen = :p1 WHERE name = :p2", {now, name});
      if (!changed.ok()) return std::move(changed).error();
      if (*changed > 0) continue;
      auto made = database.execute("INSERT INTO models_seen (name, last_seen) VALUES (:p1, :p2)",
                                   {name, now});
      if (!made.ok()) return std::move(made).error();
    }
    auto gone = database.execute("DELETE FROM models_seen WHERE last_seen < :p1",
                                 {now - kModelMemorySeconds});
    if (!gone.ok()) return std::move(gone).error();
    return ok_status();
  });
}

}  // namespace flotilla::coordinator
