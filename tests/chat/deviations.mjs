// Differences that come from @huggingface/jinja 0.5.11 and not from the language, each confirmed with Jinja2 3.1.6.
// Returns the reason, or null for a difference that nobody knows. Further ones that the templates here avoid: no `raw`
// blocks, no `list` filter on strings, no `map` with a filter, lengths and slices count UTF-16 units.
const hasContent = (one, test) => one.messages.some((message) => test(message.content));

export function explain(one, ours, theirs) {
  if (!ours.ok && theirs.ok && / '?(str|list|dict|NoneType)'? \+ '(str|list|dict|NoneType)' is not defined$/.test(ours.error) &&
      hasContent(one, (content) => typeof content !== "string")) {
    return "it adds lists and objects to strings; Python refuses";
  }
  if (ours.ok && !theirs.ok && /^Unknown (Array|Object)Value filter: trim$|^Cannot apply filter "trim" to type/.test(theirs.error) &&
      hasContent(one, (content) => typeof content !== "string")) {
    return "its trim takes strings only; Jinja converts first";
  }
  if (ours.ok && !theirs.ok && theirs.error === "Invalid content type" && hasContent(one, (content) => content === undefined)) {
    return "undefined values are not iterable in it";
  }
  if (one.messages.length === 0 && !ours.ok && theirs.ok && ours.error.endsWith("is undefined")) {
    return "members of undefined values are undefined in it; Jinja refuses";
  }
  const squeezed = (text) => text.replaceAll(/\s/g, "");
  if (one.template === "qwen3" && ours.ok && theirs.ok && squeezed(ours.text) === squeezed(theirs.text) &&
      hasContent(one, (content) => typeof content === "string" && /^ /.test(content))) {
    return "its lstrip strips all white space, whatever its argument";
  }
  return null;
}
