#include "apps/flotilla/kernel_check.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/numerics.h"
#include "flotilla/log/log.h"

namespace flotilla::apps {
namespace {

constexpr int kRounds = 2;

// What the processor says of itself, without what changes from second to second.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text, line;
  while (std::getline(file, line) && !line.empty()) {
    for (const char* name : {"vendor_id", "cpu family", "model", "stepping", "microcode", "flags",
                             "CPU implementer", "CPU part", "CPU revision", "Features"}) {
      if (line.starts_with(name)) text += line + ";";
    }
  }
  return text;
}

// One line: everything that the outcome depends on.
std::string fingerprint(int threads) {
  struct stat program = {};
  if (::stat("/proc/self/exe", &program) != 0) return {};
  std::ostringstream text;
  text << "kernels " << backend::kKernelAbiVersion << "." << backend::kPartitionVersion
       << "; program " << program.st_size << " " << program.st_mtim.tv_sec << "."
       << program.st_mtim.tv_nsec << " " << program.st_ino << "; threads " << threads << "; "
       << processor();
  return text.str();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

// Best effort: without it the next start checks again.
void write_file(const std::string& path, const std::string& text) {
  if (!path.starts_with('/')) return;  // no home: nothing is left in the current folder
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string draft = path + ".new";
  {
    std::ofstream file(draft);
    file << text;
    if (!file.flush()) return;
  }
  std::filesystem::rename(draft, path, ignored);
}

}  // namespace

Status check_kernels_at_start(int threads, const std::string& state_dir) {
  const std::string path = state_dir + "/kernel-check";
  const std::string key = fingerprint(threads);
  if (const std::string kept = read_file(path);
      !key.empty() && kept.starts_with(key + "\n") && kept.size() == key.size() + 66) {
    log::info("kernels_checked", {{"numerics", kept.substr(key.size() + 1, 64)}, {"cached", true}});
    return ok_status();
  }
  const auto begin = std::chrono::steady_clock::now();
  auto id = backend::check_numerics({.num_threads = threads}, kRounds);
  if (!id.ok()) {
    log::error("kernel_check_failed", {{"what", id.error().message}});
    return std::move(id).error();
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  log::info("kernels_checked", {{"numerics", *id}, {"cached", false}, {"ms", took.count()}});
  if (!key.empty()) write_file(path, key + "\n" + *id + "\n");
  return ok_status();
}

Status check_card_at_start(int device) {
  const auto begin = std::chrono::steady_clock::now();
  const auto check = [&]() -> Result<std::string> {
    FLOTILLA_TRY(const auto made, backend::make_cuda_backend(device));
    FLOTILLA_TRY(std::string id, backend::check_numerics(*made, kRounds));
    const backend::cuda::SelfTest test = backend::cuda::cuda_device(*made)->self_test();
    if (test.differences != 0) {
      return Error{ErrorCode::kModelFault, "the matrix instructions of '" +
                                               made->capabilities().device +
                                               "' do not agree with each other"};
    }
    return id;
  };
  auto id = check();
  if (!id.ok()) {
    log::error("kernel_check_failed", {{"what", id.error().message}});
    return std::move(id).error();
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  log::info("card_checked", {{"numerics", *id}, {"ms", took.count()}});
  return ok_status();
}

}  // namespace flotilla::apps
