// The one error type of the project: a code from a closed set and a message that names the thing
// and the limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flotilla {

// Few on purpose: `api/` maps each once to HTTP, `protocol/` once to the wire.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,    // the request or file is wrong and will stay wrong
  kNotFound,           // no such model, file, job, key
  kUnauthenticated,    // no or wrong credentials
  kPermissionDenied,   // known, but not allowed
  kAlreadyExists,      // would overwrite
  kResourceExhausted,  // a limit of ours: queue full, memory, rate
  kInsufficientFunds,  // the account or key cannot pay for it
  kTooLarge,           // the input exceeds a stated limit
  kContextLength,      // prompt longer than the model's context
  kUnavailable,        // try again later or elsewhere
  kDeadlineExceeded,   // took longer than allowed
  kCancelled,          // the asker gave up
  kDataLoss,           // a file or frame is damaged or forged
  kUnsupported,        // valid, but not something we can do
  kModelFault,         // the model produced NaN or infinite logits, or a device failed
  kInternal,           // our fault
};

// "invalid_argument", "not_found", ...
std::string_view to_string(ErrorCode code);
// The inverse; kInternal for an unknown name.
ErrorCode error_code_from_string(std::string_view name);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  // What the error is about where the asker has names for it, e.g. "messages[2].role"; may be
  // empty.
  std::string param = {};
  // When to try again, where that is known; 0: unknown.
  std::int64_t retry_after_s = 0;
};

// "not_found: model 'x' is not loaded"
std::string to_string(const Error& error);

}  // namespace flotilla
