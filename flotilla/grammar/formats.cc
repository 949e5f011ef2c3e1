#include "flotilla/grammar/formats.h"

#include <algorithm>
#include <array>
#include <string>

namespace flotilla::grammar {
namespace {

struct Format {
  std::string_view name, pattern;
};

// Leap days in leap years only.
#define DATE                                                        \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"        \
  "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))" \
  "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
// Without leap seconds.
#define TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
// Every count multiplies the states: lengths are limited only where the format does.
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,14}[A-Za-z0-9])?"
#define FREE_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define HEX "[0-9A-Fa-f]{1,4}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

constexpr Format kFormats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    // Up to four labels of up to 16 characters.
    {"hostname", LABEL "(?:\\." LABEL "){0,3}"},
    // An unquoted local part at a domain of two and more labels.
    {"email", "[A-Za-z0-9_%+-]+(?:\\.[A-Za-z0-9_%+-]+)*@" FREE_LABEL "(?:\\." FREE_LABEL ")+"},
    {"ipv4", IPV4},
    // All eight groups, or one gap of at least two groups.
    {"ipv6", "(?:" HEX ":){7}" HEX "|::(?:" HEX "(?::" HEX "){0,5})?|" HEX "::(?:" HEX "(?::" HEX
             "){0,4})?|" HEX ":" HEX "::(?:" HEX "(?::" HEX "){0,3})?|(?:" HEX ":){2}" HEX
             "::(?:" HEX "(?::" HEX "){0,2})?|(?:" HEX ":){3}" HEX "::(?:" HEX "(?::" HEX
             ")?)?|(?:" HEX ":){4}" HEX "::(?:" HEX ")?"},
    // With an authority: scheme://host[:port][/path][?query][#fragment].
    {"uri", "[a-z][a-z0-9+.-]*://" FREE_LABEL "(?:\\." FREE_LABEL ")*(?::\\d{1,4})?(?:/" PCHAR
            "*)*(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"},
    {"duration",
     "P(?:\\d{1,4}W|(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)"
     "(?:T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))?"
     "|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))"},
};

constexpr std::array<std::string_view, 10> kUnsupported = {
    "idn-email",    "idn-hostname", "uri-reference",         "iri",   "iri-reference",
    "uri-template", "json-pointer", "relative-json-pointer", "regex", "url"};

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return {};
}

bool is_unsupported_format(std::string_view format) {
  return std::find(kUnsupported.begin(), kUnsupported.end(), format) != kUnsupported.end();
}

}  // namespace flotilla::grammar
