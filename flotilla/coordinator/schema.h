// The coordinator's tables. Only steps are added.
#pragma once

#include <span>

#include "flotilla/store/migrations.h"

namespace flotilla::coordinator {

std::span<const store::Migration> schema();

// Opens the database and brings its schema up to date.
Result<store::Database> open_database(const std::string& path,
                                      const store::DatabaseOptions& options = {});

// Counts every change of keys and nodes, so that a running server notices what a command changed.
// Call inside the transaction that changes.
Status note_change(store::Database& database);
Result<std::int64_t> change_count(store::Database& database);

}  // namespace flotilla::coordinator
