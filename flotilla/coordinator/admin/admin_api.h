// The admin API: what the fleet's owner may see and do over HTTP. docs/api.md lists the routes.
#pragma once

#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/coordinator/gateway/gateway.h"
#include "flotilla/serving/extra_route.h"

namespace flotilla::coordinator {

// Everything it is given must outlive the routes.
class AdminApi {
 public:
  AdminApi(const AdminAccess& access, CorePost core, Dispatcher& dispatcher, const Clock& clock);

  std::vector<serving::ExtraRoute> routes() const;

 private:
  using Answer = std::function<net::HttpResponse()>;
  // Answers with what `make` gives on the core strand.
  void on_core(serving::ExtraRoute::Reply reply, Answer make) const;
  net::HttpResponse nodes() const;
  net::HttpResponse explain(const std::string& query) const;
  net::HttpResponse order(WarmOrder::What what, const std::string& query) const;

  const AdminAccess& access_;
  const CorePost core_;
  Dispatcher& dispatcher_;  // core strand only
  const Clock& clock_;
};

}  // namespace flotilla::coordinator
