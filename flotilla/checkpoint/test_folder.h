// For tests: a temporary folder that holds a checkpoint made of raw pieces.
#pragma once

#include <string>
#include <string_view>

namespace flotilla::checkpoint {

class TestFolder {
 public:
  TestFolder();
  ~TestFolder();  // removes everything in it
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, std::string_view bytes) const;
  // Copies a file or folder into this one under `name`, writable.
  void copy(const std::string& from, const std::string& name) const;
  // 8 bytes of length, `header`, `data`.
  static std::string safetensors(std::string_view header, std::string_view data);

 private:
  std::string path_;
};

}  // namespace flotilla::checkpoint
