// Manifests of models as a broken or hostile source would send them. What is taken must be safe to
// create below a folder, and mean the same when it is written out again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "flotilla/download/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flotilla::download;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)check_file_path(text);
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return 0;
  for (const ManifestFile& file : manifest->files) {
    if (file.path.front() == '/' || file.path.find("..") == 0 ||
        file.path.find("/..") != std::string::npos || file.path.find('\0') != std::string::npos)
      std::abort();
  }
  const auto again = parse_manifest(render_manifest(*manifest));
  if (!again.ok() || again->digest != manifest->digest ||
      again->files.size() != manifest->files.size())
    std::abort();
  return 0;
}
