// The catalog in the database.
#pragma once

#include "flotilla/coordinator/catalog/catalog_view.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// All of it.
Result<std::shared_ptr<const CatalogView>> load_catalog(store::Database& database, bool only);

// Each of these is one transaction.

// A further version of `entry.model`; its version and times are given here. The same files again
// are kAlreadyExists, unless that version is retired: then it is published again as it is told now.
Result<CatalogEntry> publish_model(store::Database& database, CatalogEntry entry, bool activate,
                                   std::int64_t now);
// From now on the name means this version; the one that was active is published only. Also brings a
// retired one back.
Status activate_model(store::Database& database, const std::string& model, std::int64_t version,
                      std::int64_t now);
// Version 0: all of them. Says how many.
Result<std::int64_t> retire_model(store::Database& database, const std::string& model,
                                  std::int64_t version, std::int64_t now);
// `alias` means `model` from now on, also where it meant another one. Names of models are none.
Status set_alias(store::Database& database, const std::string& alias, const std::string& model,
                 std::int64_t now);
Status drop_alias(store::Database& database, const std::string& alias);

}  // namespace flotilla::coordinator
