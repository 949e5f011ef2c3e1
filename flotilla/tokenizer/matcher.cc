#define PCRE2_CODE_UNIT_WIDTH 8
#include "flotilla/tokenizer/matcher.h"

#include <pcre2.h>

#include "flotilla/tokenizer/regex_syntax.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace {

// Backtracking steps of one attempt at one position.
constexpr std::uint32_t kMaxMatchSteps = 5'000'000;
constexpr std::uint32_t kMaxHeapKib = 64 * 1024;
constexpr std::size_t kMaxJitStackBytes = 8u << 20;
// Reading the clock costs as much as a short match.
constexpr int kAttemptsPerClockRead = 16;

template <class T, void (*Free)(T*)>
struct Freer {
  void operator()(T* p) const { Free(p); }
};
using CodePtr = std::unique_ptr<pcre2_code, Freer<pcre2_code, pcre2_code_free>>;
using MatchDataPtr =
    std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;
using MatchContextPtr =
    std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context,
                                          Freer<pcre2_compile_context, pcre2_compile_context_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack, pcre2_jit_stack_free>>;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0)
    return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Matcher::Program {
  std::string pattern;  // as in the file, shortened; for messages
  CodePtr code;
  bool has_jit = false;
};

Matcher::Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Matcher Matcher::literal(std::string text) {
  Matcher m;
  m.literal_ = std::move(text);
  return m;
}

Result<Matcher> Matcher::regex(const std::string& pattern) {
  if (const Scanner scanner = find_scanner(pattern)) {
    Matcher m;
    m.scanner_ = scanner;
    return m;
  }
  return generic_regex(pattern);
}

Result<Matcher> Matcher::generic_regex(const std::string& pattern) {
  FLOTILLA_TRY(const std::string translated, to_pcre2_syntax(pattern));
  CompileContextPtr context(pcre2_compile_context_create(nullptr));
  FLOTILLA_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Anchored: the loop over positions is ours, so that the limits hold for each of them.
  CodePtr code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, context.get()));
  if (!code) {
    return Error{ErrorCode::kInvalidArgument,
                 "regular expression '" + pattern.substr(0, 200) + "': " + message_of(error) +
                     " (at " + std::to_string(offset) + " of '" + translated.substr(0, 200) + "')"};
  }
  Matcher m;
  m.program_ = std::make_unique<Program>();
  m.program_->pattern = pattern.substr(0, 200);
  m.program_->has_jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  m.program_->code = std::move(code);
  return m;
}

Status Matcher::find_all(std::string_view text, std::vector<Match>& out,
                         MatchBudget& budget) const {
  if (text.empty()) {
    out.push_back({0, 0, false});
    return ok_status();
  }
  if (program_) return find_regex(text, out, budget);
  std::size_t previous = 0;
  std::size_t pos = 0;
  while (pos < text.size()) {
    std::size_t begin = pos;
    std::size_t end = 0;
    if (scanner_) {
      end = scanner_(text, &begin);
    } else if (literal_.empty()) {
      begin = std::string_view::npos;
    } else {
      begin = text.find(literal_, pos);
      end = begin + literal_.size();
    }
    if (begin == std::string_view::npos) break;
    if (previous != begin) out.push_back({previous, begin, false});
    out.push_back({begin, end, true});
    previous = pos = end;
  }
  if (previous != text.size()) out.push_back({previous, text.size(), false});
  return ok_status();
}

Status Matcher::find_regex(std::string_view text, std::vector<Match>& out,
                           MatchBudget& budget) const {
  const pcre2_code* code = program_->code.get();
  MatchDataPtr data(pcre2_match_data_create_from_pattern(code, nullptr));
  MatchContextPtr context(pcre2_match_context_create(nullptr));
  FLOTILLA_CHECK(data && context, "out of memory");
  pcre2_set_match_limit(context.get(), kMaxMatchSteps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  JitStackPtr stack;  // made when the small one on the machine stack does not do
  using Clock = std::chrono::steady_clock;
  auto last_read = Clock::now();
  int attempts = 0;

  const auto too_costly = [&](std::string_view why) {
    return Error{ErrorCode::kResourceExhausted,
                 "regular expression '" + program_->pattern +
                     "' is too costly for this text: " + std::string(why)};
  };
  std::size_t previous = 0;  // end of the last match
  bool has_previous = false;
  std::size_t pos = 0;
  while (pos <= text.size()) {
    if (++attempts >= kAttemptsPerClockRead) {
      attempts = 0;
      const auto now = Clock::now();
      budget.left -= now - last_read;
      last_read = now;
      if (budget.left.count() < 0) return too_costly("time limit");
    }
    const auto attempt = [&](std::uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos,
                         PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
    };
    int rc = attempt(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(32 * 1024, kMaxJitStackBytes, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      rc = attempt(0);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = attempt(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) {
      if (pos == text.size()) break;
      pos += decode_char(text.data() + pos).size;
      continue;
    }
    if (rc < 0) return too_costly(message_of(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = range[0];
    const std::size_t end = range[1];
    if (begin > end || begin < pos) return too_costly("a match that moves its own begin");
    if (begin == end && has_previous && previous == end) {
      if (pos == text.size()) break;
      pos += decode_char(text.data() + pos).size;
      continue;
    }
    if (previous != begin) out.push_back({previous, begin, false});
    out.push_back({begin, end, true});
    previous = pos = end;
    has_previous = true;
  }
  budget.left -= Clock::now() - last_read;
  if (previous != text.size()) out.push_back({previous, text.size(), false});
  return ok_status();
}

}  // namespace flotilla::tokenizer
