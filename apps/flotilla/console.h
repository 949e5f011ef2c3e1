// What the subcommands share on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "flotilla/base/error.h"

namespace flotilla::apps {

// "flotilla: not_found: ..." on standard error; returns the exit code 1, or 2 for errors of usage.
int report(const Error& error);

// "1.4 GB", "8.3 MB", "512 B" (powers of 1000).
std::string format_bytes(std::uint64_t bytes);

bool is_terminal(std::FILE* stream);

// `text` without control characters other than line feed and tab: what a model or a file name says
// must not steer the terminal.
std::string printable(std::string_view text);

// A bar on standard error while something loads; where that is no terminal, one line when done.
// Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  void update(std::uint64_t done, std::uint64_t total);
  void finish();  // clears the bar, or prints the line

 private:
  const std::string title_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point drawn_{};  // guarded by mutex_
  std::uint64_t total_ = 0;                        // guarded by mutex_
  bool visible_ = false;                           // guarded by mutex_
};

}  // namespace flotilla::apps
