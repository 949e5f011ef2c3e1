// What a running server leaves in the database about itself, for its successor and for the audit.
#pragma once

#include <cstdint>
#include <string_view>

#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct ServerState {
  std::int64_t run = 0;             // number of the latest start
  std::int64_t run_began = 0;       // unix seconds
  std::int64_t alive = 0;           // unix seconds of the last sign of life
  std::int64_t recovery_s = 0;      // how long jobs of earlier runs may stay open
  std::int64_t carried_before = 0;  // older ledger rows were summed up
};

// All inside a transaction.
Result<ServerState> read_server_state(store::Database& database);
Status write_server_state(store::Database& database, std::string_view name, std::int64_t value);

}  // namespace flotilla::coordinator
