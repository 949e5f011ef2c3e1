// libsodium must be initialised before any use; calling it again is cheap.
#pragma once

namespace flotilla::protocol {
void init_sodium();
}  // namespace flotilla::protocol
