// Asks a running coordinator over its admin API.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/base/result.h"

namespace CLI {
class App;
}

namespace flotilla::apps {

struct AdminTarget {
  std::string url = "http://127.0.0.1:8080";
  std::string key;      // or @FILE
  std::string ca_file;  // PEM; empty: the system's authorities
};

// --url, --admin-key and --tls-ca-file, with their variables.
void add_admin_options(CLI::App& command, AdminTarget& target);

// The body of the answer; the error that it holds when its status is not 2xx.
Result<boost::json::value> ask_admin(
    const AdminTarget& target, const std::string& method, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& query = {},
    const std::string& body = {});

}  // namespace flotilla::apps
