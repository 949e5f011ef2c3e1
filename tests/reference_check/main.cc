// flotilla-reference-check DIR...: compares models with stored reference outputs; see
// tests/reference/README.md.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "report.h"

int main(int argc, char** argv) {
  using flotilla::reference_check::Outcome;
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0) {
    std::printf(
        "Usage: flotilla-reference-check DIR...\n"
        "Runs the prompts of each reference folder (layout: tests/reference/README.md) whole, in "
        "chunks, in a batch\n"
        "and on every processor target, and compares logits, greedy tokens and bits.\n"
        "Exit status: 0 all good, 1 a difference or a broken folder, 2 nothing worse than an "
        "unsupported family.\n");
    return argc < 2 ? 1 : 0;
  }
  int status = 0;
  for (int i = 1; i < argc; ++i) {
    const Outcome outcome = flotilla::reference_check::check_folder(argv[i]);
    if (outcome == Outcome::kFailed) status = 1;
    if (outcome == Outcome::kUnsupported && status == 0) status = 2;
  }
  return status;
}
