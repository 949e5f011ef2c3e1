// The HTTP routes of keys, usage and money.
#pragma once

#include <functional>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/coordinator/auth/api_key_store.h"
#include "flotilla/serving/extra_route.h"
#include "flotilla/store/worker.h"

namespace flotilla::coordinator {

class Bank;

struct MoneyDesk {
  store::Worker& reader;  // for questions, off the path of requests
  Bank& bank;             // writes
  const ApiKeyStore& keys;
  const AdminAccess& admins;
  const Clock& clock;
};

// What `desk` refers to must outlive the last request.
std::vector<serving::ExtraRoute> money_routes(const MoneyDesk& desk);

}  // namespace flotilla::coordinator
