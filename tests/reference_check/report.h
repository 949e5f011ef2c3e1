// Compares one reference folder with what the model computes.
#pragma once

#include <string>

namespace flotilla::reference_check {

enum class Outcome { kPassed, kFailed, kUnsupported };

// Prints one line per prompt and one for the folder.
Outcome check_folder(const std::string& folder);

}  // namespace flotilla::reference_check
