// The filters of Jinja that chat templates use, in three tables.
#pragma once

#include <span>
#include <string_view>

#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> list_filters();
std::span<const FilterEntry> value_filters();

}  // namespace flotilla::chat
