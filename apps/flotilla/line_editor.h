// Reads lines from the terminal with editing and history (libedit).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace flotilla::apps {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  // nullopt at the end of input (Ctrl-D). An interrupt (the flag is set by a signal handler) clears
  // the line and gives an empty string; the flag is reset. A line that ends with a backslash goes
  // on in the next. Text that is pasted stays one, with its line ends, until Enter is pressed.
  std::optional<std::string> read(const std::string& prompt, std::atomic<bool>& interrupted);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::apps
