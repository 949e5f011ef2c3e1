#include "apps/flotilla/line_editor.h"

#include <histedit.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

namespace flotilla::apps {
namespace {
constexpr int kHistoryLines = 1000;
}

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
    const char* text = el_gets(impl_->editor, &length);
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
