// Who asks: the key of a request.
#pragma once

#include <optional>
#include <string>

#include "flotilla/net/http.h"

namespace flotilla::serving {

// What the headers say about a key. `Authorization: Bearer KEY` (any case, any number of blanks)
// and `x-api-key: KEY` mean the same; two different keys, an empty one, or one with characters no
// key has are malformed.
struct Credentials {
  std::optional<std::string> key;
  bool malformed = false;
};

Credentials read_credentials(const net::Headers& headers);

}  // namespace flotilla::serving
