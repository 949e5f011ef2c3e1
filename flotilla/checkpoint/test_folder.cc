#include "flotilla/checkpoint/test_folder.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace flotilla::checkpoint {
namespace fs = std::filesystem;

TestFolder::TestFolder() {
  std::string pattern = (fs::temp_directory_path() / "flotilla-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

TestFolder::~TestFolder() {
  std::error_code ec;
  fs::remove_all(path_, ec);
}

void TestFolder::write(const std::string& name, std::string_view bytes) const {
  std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
}

void TestFolder::copy(const std::string& from, const std::string& name) const {
  const fs::path to = path_ + "/" + name;
  fs::copy(from, to, fs::copy_options::recursive);
  fs::permissions(to, fs::perms::owner_all);
  if (!fs::is_directory(to)) return;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(to)) {
    fs::permissions(entry.path(), fs::perms::owner_all);
  }
}

std::string TestFolder::safetensors(std::string_view header, std::string_view data) {
  const std::uint64_t n = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  bytes += header;
  bytes += data;
  return bytes;
}

}  // namespace flotilla::checkpoint
