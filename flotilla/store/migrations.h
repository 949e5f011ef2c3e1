// The schema's history. Each step runs once, in a transaction, and its number is recorded.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/store/database.h"

namespace flotilla::store {

struct Migration {
  int version;  // 1, 2, 3, ... without gaps
  std::string_view name;
  std::vector<std::string_view> statements;
};

// Brings the schema to the last version. Safe when several processes start at once. kUnsupported
// when the database was written by a later program.
Status migrate(Database& database, std::span<const Migration> migrations);

Result<int> schema_version(Database& database);

}  // namespace flotilla::store
