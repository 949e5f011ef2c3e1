#include "flotilla/base/error.h"

#include <array>
#include <utility>

namespace flotilla {
namespace {
constexpr std::array<std::pair<ErrorCode, std::string_view>, 16> kNames{{
    {ErrorCode::kInvalidArgument, "invalid_argument"},
    {ErrorCode::kNotFound, "not_found"},
    {ErrorCode::kUnauthenticated, "unauthenticated"},
    {ErrorCode::kPermissionDenied, "permission_denied"},
    {ErrorCode::kAlreadyExists, "already_exists"},
    {ErrorCode::kResourceExhausted, "resource_exhausted"},
    {ErrorCode::kInsufficientFunds, "insufficient_funds"},
    {ErrorCode::kTooLarge, "too_large"},
    {ErrorCode::kContextLength, "context_length_exceeded"},
    {ErrorCode::kUnavailable, "unavailable"},
    {ErrorCode::kDeadlineExceeded, "deadline_exceeded"},
    {ErrorCode::kCancelled, "cancelled"},
    {ErrorCode::kDataLoss, "data_loss"},
    {ErrorCode::kUnsupported, "unsupported"},
    {ErrorCode::kModelFault, "model_fault"},
    {ErrorCode::kInternal, "internal"},
}};
}  // namespace

std::string_view to_string(ErrorCode code) {
  for (const auto& [value, name] : kNames) {
    if (value == code) return name;
  }
  return "internal";
}

ErrorCode error_code_from_string(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return ErrorCode::kInternal;
}

std::string to_string(const Error& error) {
  return std::string(to_string(error.code)) + ": " + error.message;
}

}  // namespace flotilla
