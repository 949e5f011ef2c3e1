// The answer of GET /v1/admin/explain.
#pragma once

#include <boost/json/fwd.hpp>

#include "flotilla/coordinator/routing/explain.h"

namespace flotilla::coordinator {

boost::json::object explain_json(const Explanation& explanation, const std::string& model,
                                 std::size_t num_queued, const CatalogView& catalog,
                                 Clock::Instant now);

}  // namespace flotilla::coordinator
