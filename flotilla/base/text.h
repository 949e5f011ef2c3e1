// Small text routines that every module may need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flotilla {

// Lower-case hexadecimal.
std::string to_hex(std::span<const std::uint8_t> bytes);
// nullopt for odd length or a character outside [0-9a-fA-F].
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text);

// Base64 with the URL alphabet, no padding.
std::string to_base64url(std::span<const std::uint8_t> bytes);
std::optional<std::vector<std::uint8_t>> from_base64url(std::string_view text);

// The candidate with the smallest edit distance to `name`, if that is at most a third of its length
// (at least 2). For "did you mean" in errors.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid_utf8(std::string_view text);

// Number of bytes at the end of `text` that begin a UTF-8 character but do not complete it (0 to
// 3).
std::size_t incomplete_utf8_suffix(std::string_view text);

// Appends the UTF-8 form of `code_point`, which must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

std::string_view trim_ascii(std::string_view text);
// Comparison whose time depends on the lengths only.
bool equal_constant_time(std::string_view a, std::string_view b);

}  // namespace flotilla
