#include "flotilla/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace flotilla::log {
namespace {

std::atomic<Level> g_level{Level::kInfo};
std::atomic<Format> g_format{Format::kText};  // process-wide by nature: there is one standard error

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("flotilla",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (u < 0x20 || u == 0x7F) {  // a line break in a value must not forge a second line
      out += "\\u00";
      out.push_back(kDigits[u >> 4]);
      out.push_back(kDigits[u & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

void write(spdlog::level::level_enum level, std::string_view event, Fields fields) {
  spdlog::logger& out = logger();
  if (!out.should_log(level)) return;
  std::string line;
  if (g_format.load() == Format::kJson) {
    line = "\"event\":";
    append_quoted(line, event);
    for (const Field& f : fields) {
      line.push_back(',');
      append_quoted(line, f.name);
      line.push_back(':');
      if (f.is_string) {
        append_quoted(line, f.value);
      } else {
        line += f.value;
      }
    }
    line.push_back('}');
  } else {
    line = event;
    for (const Field& f : fields) {
      line.push_back(' ');
      line += f.name;
      line.push_back('=');
      const bool plain =
          !f.is_string ||
          (!f.value.empty() && f.value.find_first_of(" \"\\=\t\r\n") == std::string::npos);
      if (plain) {
        line += f.value;
      } else {
        append_quoted(line, f.value);
      }
    }
  }
  out.log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void configure(Level level, Format format) {
  g_level.store(level);
  g_format.store(format);
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
  logger().set_pattern(format == Format::kJson
                           ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v)"
                           : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
}

Level level() { return g_level.load(); }
Format format() { return g_format.load(); }

Result<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::kDebug;
  if (name == "info") return Level::kInfo;
  if (name == "warn") return Level::kWarn;
  if (name == "error") return Level::kError;
  return Error{ErrorCode::kInvalidArgument,
               "log level '" + std::string(name) + "' is not one of debug, info, warn, error"};
}

std::string_view to_string(Level level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  return kNames[static_cast<int>(level)];
}
std::string_view to_string(Format format) { return format == Format::kJson ? "json" : "text"; }

void debug(std::string_view event, Fields fields) { write(spdlog::level::debug, event, fields); }
void info(std::string_view event, Fields fields) { write(spdlog::level::info, event, fields); }
void warn(std::string_view event, Fields fields) { write(spdlog::level::warn, event, fields); }
void error(std::string_view event, Fields fields) { write(spdlog::level::err, event, fields); }

}  // namespace flotilla::log
