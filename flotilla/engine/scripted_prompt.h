// The prompt of a ScriptedEngine: a plain rendering and a tokeniser of words.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// "role: text" lines. Parts of a message that are not text count as one word, "<image_url>".
std::string scripted_prompt_text(const ChatJob& job);
// One token per message and one per word of its text; of raw_prompt one per word; prompt_ids as
// they are.
std::vector<TokenId> scripted_prompt_ids(const ChatJob& job);
// The text of the last message of the user; raw_prompt, or the ids in decimals, where those are
// used.
std::string last_user_text(const ChatJob& job);

}  // namespace flotilla::engine
