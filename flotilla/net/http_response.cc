#include "flotilla/net/http_response.h"

#include <array>
#include <charconv>
#include <ctime>

namespace flotilla::net {

namespace {

std::string_view reason(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 402:
      return "Payment Required";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "Status";
  }
}

void append_clean(std::string& out, std::string_view text) {
  for (char c : text) out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

void append_date(std::string& out) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  // The names of days and months are fixed by the C locale, which the programs never change.
  const std::size_t n =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  out += "Date: ";
  out.append(text.data(), n);
  out += "\r\n";
}

}  // namespace

bool status_has_body(unsigned status) { return status >= 200 && status != 204 && status != 304; }

bool wants_close(const Headers& headers) {
  const auto value = headers.find("Connection");
  return value && lower(*value) == "close";
}

std::string render_response_head(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out;
  out.reserve(256);
  out += framing.http_1_0 ? "HTTP/1.0 " : "HTTP/1.1 ";
  out += std::to_string(response.status);
  out += ' ';
  out += reason(response.status);
  out += "\r\n";
  append_date(out);
  for (const auto& [name, value] : response.headers.entries) {
    const std::string key = lower(name);
    if (key == "content-length" || key == "transfer-encoding" || key == "connection" ||
        key == "date")
      continue;
    append_clean(out, name);
    out += ": ";
    append_clean(out, value);
    out += "\r\n";
  }
  if (status_has_body(response.status)) {
    if (framing.body == ResponseFraming::Body::kLength) {
      out += "Content-Length: " + std::to_string(framing.length.value_or(response.body.size())) +
             "\r\n";
    } else if (framing.body == ResponseFraming::Body::kChunked) {
      out += "Transfer-Encoding: chunked\r\n";
    }
  }
  if (!framing.keep_alive) {
    out += "Connection: close\r\n";
  } else if (framing.http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

std::string chunk(std::string_view piece) {
  std::array<char, 16> size{};
  const auto end = std::to_chars(size.data(), size.data() + size.size(), piece.size(), 16).ptr;
  std::string out;
  out.reserve(piece.size() + 24);
  out.append(size.data(), end);
  out += "\r\n";
  out += piece;
  out += "\r\n";
  return out;
}

}  // namespace flotilla::net
