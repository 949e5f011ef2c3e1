#include "flotilla/tokenizer/added_tokens.h"

#include <algorithm>
#include <boost/json.hpp>
#include <unordered_set>

#include "flotilla/json/json.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;

void AddedTokens::Trie::build(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  std::sort(entries.begin(), entries.end());
  // Of equal contents the first wins.
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](auto& a, auto& b) { return a.first == b.first; }),
                entries.end());
  nodes.assign(1, {});
  // Breadth first, so that siblings lie together. A job is a node with the entries below it.
  struct Job {
    std::uint32_t node;
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Job> jobs = {{0, 0, entries.size(), 0}};
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job job = jobs[j];
    std::size_t i = job.begin;
    if (i < job.end && entries[i].first.size() == job.depth)
      nodes[job.node].token = entries[i++].second;
    nodes[job.node].first_child = static_cast<std::uint32_t>(nodes.size());
    while (i < job.end) {
      const auto byte = static_cast<std::uint8_t>(entries[i].first[job.depth]);
      std::size_t end = i;
      while (end < job.end && static_cast<std::uint8_t>(entries[end].first[job.depth]) == byte)
        ++end;
      jobs.push_back({static_cast<std::uint32_t>(nodes.size()), i, end, job.depth + 1});
      nodes.push_back({.byte = byte});
      ++nodes[job.node].num_children;
      if (job.depth == 0) starts[byte] = true;
      i = end;
    }
  }
}

const AddedTokens::Trie::Node* AddedTokens::Trie::child(const Node& node,
                                                        unsigned char byte) const {
  const Node* first = nodes.data() + node.first_child;
  const Node* last = first + node.num_children;
  const Node* found = std::lower_bound(first, last, byte,
                                       [](const Node& n, unsigned char b) { return n.byte < b; });
  return found != last && found->byte == byte ? found : nullptr;
}

const AddedToken* AddedTokens::longest_at(const Trie& trie, std::string_view text,
                                          std::string_view trust, std::size_t begin,
                                          std::size_t* end) const {
  const AddedToken* best = nullptr;
  const Trie::Node* node = trie.nodes.data();
  bool trusted = true;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = trie.child(*node, static_cast<unsigned char>(text[i]));
    if (!node) break;
    if (!trust.empty() && trust[i] == '\0') trusted = false;
    if (node->token < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(node->token)];
    if (token.is_control && !trusted) continue;
    best = &token;
    *end = i + 1;
  }
  return best;
}

void AddedTokens::split(std::string_view text, std::string_view trust, bool normalized,
                        std::vector<TokenSplit>& out) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::size_t done = 0;          // everything before is in `out`
  std::size_t blanks_begin = 1;  // the last run of blanks that was looked at; empty at first
  std::size_t blanks_end = 0;
  for (std::size_t pos = 0; !trie.nodes.empty() && pos < text.size();) {
    if (!trie.starts[static_cast<unsigned char>(text[pos])]) {
      ++pos;
      continue;
    }
    std::size_t stop = 0;
    const AddedToken* token = longest_at(trie, text, trust, pos, &stop);
    if (!token) {
      ++pos;
      continue;
    }
    std::size_t start = pos;
    pos = stop;
    if (token->single_word) {
      const bool free_left =
          start == 0 ||
          !is_word(decode_char(text.data() + previous_char(text, start)).code_point, true);
      const bool free_right =
          stop == text.size() || !is_word(decode_char(text.data() + stop).code_point, true);
      if (!free_left || !free_right) continue;
    }
    // Blanks beside the token become part of it, but not those that the token before took.
    if (token->lstrip) {
      while (start > done) {
        const std::size_t previous = previous_char(text, start);
        if (!is_space(decode_char(text.data() + previous).code_point)) break;
        start = previous;
      }
      start = std::min(std::max(start, done), stop);
    }
    if (token->rstrip) {
      if (stop < blanks_begin || stop > blanks_end) {
        blanks_begin = blanks_end = stop;
        while (blanks_end < text.size()) {
          const auto [c, size] = decode_char(text.data() + blanks_end);
          if (!is_space(c)) break;
          blanks_end += size;
        }
      }
      stop = blanks_end;
    }
    if (done < start) out.push_back({done, start, nullptr});
    // A token among blanks that the one before took counts again, and the text goes on behind it:
    // so the reference.
    out.push_back({start, stop, token});
    done = stop;
  }
  if (done < text.size()) out.push_back({done, text.size(), nullptr});
}

const AddedToken* AddedTokens::by_id(TokenId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::by_content(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : by_id(it->second);
}

Result<AddedTokens> AddedTokens::parse(const bj::value* value, const Vocab& vocab,
                                       const Normalizer& normalizer) {
  AddedTokens result;
  if (!value) return result;
  if (!value->is_array())
    return Error{ErrorCode::kInvalidArgument, "tokenizer: 'added_tokens' must be an array"};
  TokenId next_id = static_cast<TokenId>(vocab.size());
  std::unordered_set<std::string> control;
  std::size_t index = 0;
  for (const bj::value& entry : value->get_array()) {
    const std::string where = "added_tokens[" + std::to_string(index++) + "]";
    AddedToken token;
    FLOTILLA_TRY(token.content, json::require_string(entry, "content", where));
    FLOTILLA_TRY(token.single_word, json::require_bool(entry, "single_word", where));
    FLOTILLA_TRY(token.lstrip, json::require_bool(entry, "lstrip", where));
    FLOTILLA_TRY(token.rstrip, json::require_bool(entry, "rstrip", where));
    FLOTILLA_TRY(token.normalized, json::require_bool(entry, "normalized", where));
    FLOTILLA_TRY(token.special, json::require_bool(entry, "special", where));
    FLOTILLA_TRY_STATUS([&]() -> Status {
      FLOTILLA_TRY([[maybe_unused]] const auto id,
                   json::require_int(entry, "id", 0, kMaxTokenId, where));
      return ok_status();
    }());
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxAddedTokenBytes) {
      return Error{ErrorCode::kTooLarge,
                   "tokenizer: " + where + ".content has " + std::to_string(token.content.size()) +
                       " bytes; the limit is " + std::to_string(kMaxAddedTokenBytes)};
    }
    const auto known = result.by_content_.find(token.content);
    if (known != result.by_content_.end()) {
      token.id = known->second;
    } else if (const auto id = vocab.find(token.content)) {
      token.id = *id;
    } else {
      if (next_id > kMaxTokenId)
        return Error{ErrorCode::kTooLarge, "tokenizer: too many added tokens"};
      token.id = next_id++;
    }
    token.normalized_content = token.content;
    if (token.normalized) {
      NormalizedText text;
      text.text = token.content;
      MatchBudget budget;
      FLOTILLA_TRY_STATUS(normalizer.run(text, budget));
      token.normalized_content = std::move(text.text);
    }
    if (token.special) control.insert(token.content);
    result.by_content_[token.content] = token.id;
    result.id_limit_ = std::max(result.id_limit_, static_cast<std::size_t>(token.id) + 1);
    const auto [slot, is_new] = result.by_id_.try_emplace(token.id, result.tokens_.size());
    if (is_new) {
      result.tokens_.push_back(std::move(token));
    } else {
      result.tokens_[slot->second] = std::move(token);
    }
  }
  std::vector<std::pair<std::string_view, std::int32_t>> raw;
  std::vector<std::pair<std::string_view, std::int32_t>> normalized;
  for (std::size_t i = 0; i < result.tokens_.size(); ++i) {
    AddedToken& token = result.tokens_[i];
    token.is_control = control.contains(token.content);
    if (token.normalized_content.empty()) continue;
    (token.normalized ? normalized : raw)
        .emplace_back(token.normalized_content, static_cast<std::int32_t>(i));
  }
  if (!raw.empty()) result.raw_.build(std::move(raw));
  if (!normalized.empty()) result.normalized_.build(std::move(normalized));
  return result;
}

}  // namespace flotilla::tokenizer
