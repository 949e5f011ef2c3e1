#include "apps/flotilla/console.h"

#include <unistd.h>

namespace flotilla::apps {
namespace {
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;
}  // namespace

int report(const Error& error) {
  std::fprintf(stderr, "flotilla: %s\n", error.message.c_str());
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, two bytes in UTF-8, are control characters too.
    const bool is_c1 = c == 0xC2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) <= 0x9F;
    if (is_c1) {
      ++i;
    } else if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t') {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)),
      terminal_(is_terminal(stderr)),
      begin_(std::chrono::steady_clock::now()) {}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  std::lock_guard lock(mutex_);
  total_ = total;
  if (!terminal_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedraw && done < total) return;
  drawn_ = now;
  visible_ = true;
  const int filled = static_cast<int>(static_cast<double>(kBarWidth) * static_cast<double>(done) /
                                      static_cast<double>(total));
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(kBarWidth, ' ');
  std::fprintf(stderr, "\r\033[K%s [%s] %s of %s", title_.c_str(), bar.c_str(),
               format_bytes(done).c_str(), format_bytes(total).c_str());
  std::fflush(stderr);
}

void ProgressBar::finish() {
  std::lock_guard lock(mutex_);
  if (visible_) std::fputs("\r\033[K", stderr);
  visible_ = false;
  if (!terminal_) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const std::string size = total_ > 0 ? " " + format_bytes(total_) + " in" : std::string();
    std::fprintf(stderr, "%s:%s %.1f s\n", title_.c_str(), size.c_str(), seconds);
  }
  std::fflush(stderr);
}

}  // namespace flotilla::apps
