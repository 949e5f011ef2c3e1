// Settings of a program: defaults, then a TOML file, then the environment, then flags; the later
// wins. One declaration gives all three spellings: "tls.certificate" is that key in the file,
// FLOTILLA_TLS_CERTIFICATE and --tls-certificate; "log_level" is log_level, FLOTILLA_LOG_LEVEL and
// --log-level. Unknown keys in the file and unknown FLOTILLA_ variables are refused with the
// nearest known name. One thread, at start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"

namespace CLI {
class App;
}

namespace flotilla::settings {

class Settings {
 public:
  Settings();
  ~Settings();
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  // Targets hold the defaults and must outlive load().
  void add(std::string name, std::string* target, std::string help, bool secret = false);
  void add(std::string name, bool* target, std::string help);
  void add(std::string name, std::int64_t* target, std::int64_t min, std::int64_t max,
           std::string help);
  void add(std::string name, double* target, double min, double max, std::string help);
  // In the environment: separated by commas; as a flag: given several times.
  void add(std::string name, std::vector<std::string>* target, std::string help,
           bool secret = false);

  // Adds --config and one flag per setting. `app` must outlive load().
  void bind_flags(CLI::App& app);

  // After the command line was parsed. `environment` is "NAME=value" entries; the config file is
  // --config, else the variable FLOTILLA_CONFIG, else none. Errors name key, source and the
  // accepted range.
  Status load(const std::vector<std::string>& environment);

  // "listen=127.0.0.1:8080 log_level=info api_keys=(2 secret)": for one line at start.
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The process environment as load() wants it.
std::vector<std::string> process_environment();

}  // namespace flotilla::settings
