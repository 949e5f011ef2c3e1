// What one request may contain. Stated in docs/api.md; every refusal names the limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flotilla::api {

inline constexpr std::size_t kMaxBodyDepth =
    48;  // JSON nesting of a body; leaves room for the link's own levels
inline constexpr std::size_t kMaxBodyValues =
    500'000;                                           // strings, numbers, lists, objects in a body
inline constexpr std::size_t kMaxArgumentsDepth = 32;  // nesting inside a replayed call's arguments
inline constexpr std::size_t kMaxModelNameBytes = 256;
inline constexpr std::size_t kMaxMessages = 10'000;
inline constexpr std::size_t kMaxPartsPerMessage = 4096;
inline constexpr std::size_t kMaxCallsPerMessage = 256;
inline constexpr std::size_t kMaxNameBytes =
    256;  // of a participant, a call id or a function in the history
inline constexpr std::size_t kMaxTools = 512;
inline constexpr std::size_t kMaxToolNameBytes = 64;
inline constexpr std::size_t kMaxTemplateVariables = 64;
inline constexpr std::int64_t kMaxChoices = 16;
inline constexpr std::size_t kMaxPrompts = 64;        // of one text completion
inline constexpr std::size_t kMaxTotalChoices = 128;  // prompts times choices
inline constexpr std::int64_t kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;
inline constexpr std::size_t kMaxStopTokenIds = 256;
inline constexpr std::size_t kMaxOutputChoices = 1000;
inline constexpr std::size_t kMaxOutputRegexBytes = 16'384;
inline constexpr std::size_t kMaxOutputGrammarBytes = 65'536;
inline constexpr std::int64_t kMaxTokensLimit = 2'147'483'647;  // far above any context
inline constexpr std::int64_t kMaxTokenId = 2'147'483'647;

}  // namespace flotilla::api
