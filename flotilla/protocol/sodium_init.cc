#include "flotilla/protocol/sodium_init.h"

#include <sodium.h>

#include "flotilla/base/check.h"

namespace flotilla::protocol {

void init_sodium() {
  static const bool ready = sodium_init() >= 0;
  FLOTILLA_CHECK(ready, "libsodium could not be initialised");
}

}  // namespace flotilla::protocol
