// The description of the HTTP API that the programs serve at /openapi.json: docs/openapi.json as
// it was at build time.
#pragma once

#include <string_view>

namespace flotilla::api {

std::string_view openapi_document();

}  // namespace flotilla::api
