// The HTTP routes of the catalog: what admins change, and what nodes fetch models by.
#pragma once

#include <boost/json/fwd.hpp>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/coordinator/auth/api_key_store.h"
#include "flotilla/coordinator/catalog/catalog.h"
#include "flotilla/coordinator/catalog/file_server.h"
#include "flotilla/serving/extra_route.h"

namespace flotilla::coordinator {

class Bank;

struct CatalogDesk {
  Bank& bank;  // writes
  Catalog& catalog;
  FileServer& files;
  const ApiKeyStore& keys;
  const AdminAccess& admins;
  const Clock& clock;
  bool downloads_for_keys = true;  // else for admins only
};

// What `desk` refers to must outlive the last request.
std::vector<serving::ExtraRoute> catalog_routes(const CatalogDesk& desk);

// An entry as admins see it.
boost::json::object render_entry(const CatalogEntry& entry, const CatalogView& view,
                                 bool with_files);

}  // namespace flotilla::coordinator
