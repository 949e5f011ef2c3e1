#include "apps/flotilla/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace flotilla::apps {
namespace {

constexpr int kHistoryLines = 1000;
// Terminals that know this mode put pasted text between two sequences of their own.
constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";
constexpr const char* kPasteBegin = "\033[200~";
constexpr std::wstring_view kPasteEnd = L"\033[201~";
constexpr std::size_t kMaxPaste = std::size_t{1} << 20;  // characters; more is left out

unsigned char insert_paste(EditLine* editor, int) {
  std::wstring text;
  wchar_t c = 0;
  while (!text.ends_with(kPasteEnd) && el_wgetc(editor, &c) == 1) {
    text += c == L'\r' ? L'\n' : c;
    if (text.size() > kMaxPaste + kPasteEnd.size()) text.erase(kMaxPaste, 1);
  }
  if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
  while (!text.empty() && text.back() == L'\n') text.pop_back();
  return !text.empty() && el_winsertstr(editor, text.c_str()) < 0 ? CC_ERROR : CC_REFRESH;
}

void set_mode(const char* sequence) {
  if (::isatty(STDOUT_FILENO) == 0) return;
  std::fputs(sequence, stdout);
  std::fflush(stdout);
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;

  static char* show_prompt(EditLine* editor) {
    Impl* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt.data();
  }
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  // libedit reads characters of the locale; "C" has none beyond ASCII.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  impl_->editor = el_init("flotilla", stdin, stdout, stderr);
  impl_->history = history_init();
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, kHistoryLines);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  el_set(impl_->editor, EL_CLIENTDATA, impl_.get());
  el_set(impl_->editor, EL_PROMPT, &Impl::show_prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_HIST, history, impl_->history);
  el_set(impl_->editor, EL_SIGNAL, 0);  // our own handler sets the flag
  el_set(impl_->editor, EL_ADDFN, "insert-paste", "Insert pasted text", &insert_paste);
  el_set(impl_->editor, EL_BIND, kPasteBegin, "insert-paste", nullptr);
}

LineEditor::~LineEditor() {
  history_end(impl_->history);
  el_end(impl_->editor);
}

std::optional<std::string> LineEditor::read(const std::string& prompt,
                                            std::atomic<bool>& interrupted) {
  std::string line;
  impl_->prompt = prompt;
  for (;;) {
    int length = 0;
    set_mode(kPasteOn);
    const char* text = el_gets(impl_->editor, &length);
    set_mode(kPasteOff);
    if (interrupted.exchange(false)) {
      el_reset(impl_->editor);
      std::fputc('\n', stdout);
      return "";
    }
    if (text == nullptr || length <= 0) {
      if (line.empty()) return std::nullopt;
      break;
    }
    line.append(text, static_cast<std::size_t>(length));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (line.empty() || line.back() != '\\') break;
    line.back() = '\n';
    impl_->prompt = "... ";
  }
  if (!line.empty()) {
    HistEvent event;
    history(impl_->history, &event, H_ENTER, line.c_str());
  }
  return line;
}

}  // namespace flotilla::apps
