#include "flotilla/chat/chat_template.h"

namespace flotilla::chat {

std::string_view chatml_template() {
  static constexpr std::string_view kSource = R"jinja(
{%- macro text(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content is iterable and content is not mapping -%}
    {%- for part in content -%}{%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- set has_system = messages and messages[0].role in ['system', 'developer'] -%}
{%- if has_system or tools -%}
  {{- '<|im_start|>system\n' -}}
  {%- if has_system -%}{{- text(messages[0].content) -}}{%- endif -%}
  {%- if tools -%}
    {{- ('\n\n' if has_system else '') ~ 'You can call these functions, described as JSON:\n<tools>' -}}
    {%- for tool in tools -%}{{- '\n' -}}{{- tool | tojson -}}{%- endfor -%}
    {{- '\n</tools>\nTo call one, write its name and arguments as JSON between tags:\n<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>' -}}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if loop.first and has_system -%}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
    {{- '\n<tool_response>\n' -}}{{- text(message.content) -}}{{- '\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
  {%- else -%}
    {{- '<|im_start|>' ~ ('system' if message.role == 'developer' else message.role) ~ '\n' -}}
    {%- set body = text(message.content) -%}
    {{- body -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set f = call.function or call -%}
      {{- ('' if loop.first and not body else '\n') ~ '<tool_call>\n{"name": ' ~ (f.name | tojson) ~ ', "arguments": ' -}}
      {{- f.arguments if f.arguments is string and f.arguments else (f.arguments or {}) | tojson -}}
      {{- '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)jinja";
  return kSource;
}

std::string_view plain_template() {
  static constexpr std::string_view kSource = R"jinja(
{%- macro text(content) -%}
  {%- if content is string -%}{{- content | trim -}}
  {%- elif content is iterable and content is not mapping -%}
    {%- for part in content -%}{%- if part.type == 'text' -%}{{- part.text | trim -}}{%- endif -%}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- for message in messages -%}
  {%- set body = text(message.content) -%}
  {%- if message.role in ['system', 'developer'] -%}
    {%- if body -%}{{- body ~ '\n\n' -}}{%- endif -%}
  {%- else -%}
    {{- {'user': 'User', 'assistant': 'Assistant', 'tool': 'Tool'}[message.role] | default('User') ~ ': ' ~ body ~ '\n\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}
)jinja";
  return kSource;
}

}  // namespace flotilla::chat
