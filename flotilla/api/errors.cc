#include "flotilla/api/errors.h"

#include <algorithm>
#include <cstdint>

#include "flotilla/api/json_text.h"

namespace flotilla::api {
namespace {
constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServerError = "server_error";

ErrorShape shape_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return {400, kInvalidRequest, "invalid_value", 0};
    case ErrorCode::kNotFound:
      return {404, kInvalidRequest, error.param == "model" ? "model_not_found" : "not_found", 0};
    case ErrorCode::kUnauthenticated:
      return {401, "authentication_error", "invalid_api_key", 0};
    case ErrorCode::kPermissionDenied:
      return {403, "permission_error", "permission_denied", 0};
    case ErrorCode::kAlreadyExists:
      return {409, kInvalidRequest, "already_exists", 0};
    case ErrorCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded", 1};
    case ErrorCode::kInsufficientFunds:
      return {402, "insufficient_quota", "insufficient_quota", 0};
    case ErrorCode::kTooLarge:
      return {413, kInvalidRequest, "request_too_large", 0};
    case ErrorCode::kContextLength:
      return {400, kInvalidRequest, "context_length_exceeded", 0};
    case ErrorCode::kUnavailable:
      return {503, kServerError, "unavailable", 2};
    case ErrorCode::kDeadlineExceeded:
      return {504, kServerError, "deadline_exceeded", 0};
    // Seen by nobody when the client left; by the client when the server stops.
    case ErrorCode::kCancelled:
      return {503, kServerError, "cancelled", 2};
    case ErrorCode::kDataLoss:
      return {500, kServerError, "data_loss", 0};
    case ErrorCode::kUnsupported:
      return {400, kInvalidRequest, "unsupported", 0};
    case ErrorCode::kModelFault:
      return {500, kServerError, "model_fault", 0};
    case ErrorCode::kInternal:
      return {500, kServerError, "internal_error", 0};
  }
  return {500, kServerError, "internal_error", 0};
}

}  // namespace

ErrorShape error_shape(const Error& error) {
  ErrorShape shape = shape_of(error);
  if (shape.retry_after_s > 0 && error.retry_after_s > 0) {
    shape.retry_after_s = static_cast<int>(std::min<std::int64_t>(error.retry_after_s, 86'400));
  }
  return shape;
}

ErrorShape protocol_error_shape(unsigned status) {
  switch (status) {
    case 404:
      return {404, kInvalidRequest, "unknown_url", 0};
    case 405:
      return {405, kInvalidRequest, "method_not_allowed", 0};
    case 408:
      return {408, kInvalidRequest, "request_timeout", 0};
    case 413:
      return {413, kInvalidRequest, "request_too_large", 0};
    case 431:
      return {431, kInvalidRequest, "headers_too_large", 0};
    case 500:
      return {500, kServerError, "internal_error", 0};
    case 501:
      return {501, kInvalidRequest, "unsupported", 0};
    case 503:
      return {503, kServerError, "unavailable", 2};
    case 505:
      return {505, kInvalidRequest, "unsupported", 0};
    default:
      return {status >= 400 && status < 600 ? status : 400, kInvalidRequest, "invalid_request", 0};
  }
}

std::string render_error(const ErrorShape& shape, std::string_view message,
                         std::string_view param) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, message);
  out += R"(,"type":)";
  append_json_string(out, shape.type);
  out += R"(,"param":)";
  if (param.empty()) {
    out += "null";
  } else {
    append_json_string(out, param);
  }
  out += R"(,"code":)";
  append_json_string(out, shape.code);
  out += "}}";
  return out;
}

std::string render_error(const Error& error) {
  return render_error(error_shape(error), error.message, error.param);
}

ErrorShape anthropic_shape(ErrorShape shape) {
  switch (shape.status) {
    case 401:
      shape.type = "authentication_error";
      break;
    case 402:
      shape.type = "billing_error";
      break;
    case 403:
      shape.type = "permission_error";
      break;
    case 404:
      shape.type = "not_found_error";
      break;
    case 413:
      shape.type = "request_too_large";
      break;
    case 429:
      shape.type = "rate_limit_error";
      break;
    case 503:
      shape.status = 529;
      shape.type = "overloaded_error";
      break;
    case 504:
      shape.type = "timeout_error";
      break;
    default:
      shape.type = shape.status < 500 ? kInvalidRequest : "api_error";
  }
  return shape;
}

std::string render_anthropic_error(const ErrorShape& shape, std::string_view message,
                                   std::string_view request_id) {
  std::string out = R"({"type":"error","error":{"type":)";
  append_json_string(out, shape.type);
  out += R"(,"message":)";
  append_json_string(out, message);
  out += R"(},"request_id":)";
  if (request_id.empty()) {
    out += "null";
  } else {
    append_json_string(out, request_id);
  }
  out += '}';
  return out;
}

}  // namespace flotilla::api
