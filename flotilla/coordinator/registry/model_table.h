// Models that nodes have served, in the database: after a restart a request for one of them waits
// for its node instead of hearing that there is no such model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// A model that no node has listed for so long is forgotten.
inline constexpr std::int64_t kModelMemorySeconds = 7 * 24 * 3600;

// Those seen since `since` (unix seconds), by name.
Result<std::vector<std::string>> list_seen_models(store::Database& database, std::int64_t since);
Status note_seen_models(store::Database& database, const std::vector<std::string>& names,
                        std::int64_t now);

}  // namespace flotilla::coordinator
