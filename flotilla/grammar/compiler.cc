#include "flotilla/grammar/compiler.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "flotilla/grammar/ebnf.h"
#include "flotilla/grammar/regex.h"
#include "flotilla/grammar/schema.h"
#include "flotilla/grammar/value_writer.h"

namespace flotilla::grammar {
namespace bj = boost::json;
namespace {

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

Error with_param(const Error& error, const std::string& param) {
  if (!error.param.empty()) return error;
  return Error{error.code, "'" + param + "': " + error.message, param};
}

class ConstraintCompiler {
 public:
  ConstraintCompiler(const Constraint& constraint, const bj::value& tools,
                     const std::optional<CallSyntax>& calls)
      : constraint_(constraint), tools_(tools), calls_(calls) {}

  Result<Automaton> run() {
    const StateId from = b_.add_state(), to = b_.add_state();
    b_.mark_end(to);
    Status status = ok_status();
    const bool content = constraint_.kind != Constraint::Kind::kNone;
    // A model whose calls are not known makes none; what was asked of its answer still holds.
    const bool no_calls = constraint_.calls == Constraint::Calls::kStrict && content && !calls_ &&
                          constraint_.strict_tools.empty();
    if (constraint_.calls == Constraint::Calls::kFree || no_calls) {
      status = emit_content(from, to);
    } else if (constraint_.calls == Constraint::Calls::kForced) {
      status = emit_calls(from, to);
    } else {
      StateId at = from;
      if (content) {
        FLOTILLA_TRY_STATUS(emit_content(from, to));
      } else {
        at = b_.add_state();
        b_.add_empty(from, at);
        b_.add_code_points(at, 0, 0x10ffff, at);
        b_.add_empty(at, to);
      }
      status = emit_calls(at, to);
    }
    if (!status.ok()) return std::move(status).error();
    auto automaton = b_.finish(from);
    if (!automaton.ok()) return with_param(automaton.error(), constraint_.param);
    return automaton;
  }

 private:
  Status emit_content(StateId from, StateId to) {
    switch (constraint_.kind) {
      case Constraint::Kind::kNone:
        break;
      case Constraint::Kind::kJsonObject: {
        ValueWriter json = ValueWriter::json(b_);
        b_.add_call(from, json.any_object(), to);
        break;
      }
      case Constraint::Kind::kJsonSchema: {
        ValueWriter json = ValueWriter::json(b_);
        SchemaCompiler schema(b_, json, constraint_.schema, constraint_.param);
        FLOTILLA_TRY(const RuleId rule, schema.compile());
        b_.add_call(from, rule, to);
        break;
      }
      case Constraint::Kind::kRegex:
        return named(emit_regex(b_, constraint_.text, RegexMode::kWhole, from, to));
      case Constraint::Kind::kGrammar:
        return named(emit_ebnf(b_, constraint_.text, from, to));
      case Constraint::Kind::kChoice:
        for (const std::string& choice : constraint_.choices) b_.add_literal(from, choice, to);
        break;
    }
    return ok_status();
  }

  Status named(const Status& status) const {
    if (status.ok()) return status;
    return with_param(status.error(), constraint_.param);
  }

  Status emit_calls(StateId from, StateId to) {
    if (!calls_) {
      return Error{
          ErrorCode::kUnsupported,
          "'tool_choice': the call notation of this model is not known; calls cannot be enforced",
          "tool_choice"};
    }
    ValueWriter writer = ValueWriter::gemma4(b_, calls_->quote);
    const StateId call_from = b_.add_state(), call_to = b_.add_state();
    const RuleId call = b_.add_rule(call_from);
    b_.mark_end(call_to);
    const StateId name = b_.add_state(), end = b_.add_state(), word = b_.add_state();
    b_.add_control(call_from, calls_->open, word);
    b_.add_literal(word, "call:", name);
    b_.add_control(end, calls_->close, call_to);
    bool any = false;
    if (tools_.is_array()) {
      for (std::size_t i = 0; i < tools_.get_array().size(); ++i) {
        const bj::value& tool = tools_.get_array()[i];
        const bj::object& function = tool.at("function").as_object();
        const std::string_view tool_name = view(function.at("name").as_string());
        if (!constraint_.function.empty() && tool_name != constraint_.function) continue;
        const StateId arguments = b_.add_state();
        b_.add_literal(name, tool_name, arguments);
        FLOTILLA_TRY_STATUS(emit_arguments(writer, function, i, arguments, end));
        any = true;
      }
    }
    if (!any) {
      return Error{ErrorCode::kInvalidArgument, "'tool_choice': the request has no such tool",
                   "tool_choice"};
    }
    StateId at = from;
    const std::size_t most = constraint_.parallel ? kMaxParallelCalls : 1;
    for (std::size_t i = 0; i < most; ++i) {
      const StateId next = b_.add_state();
      b_.add_call(at, call, next);
      b_.add_empty(next, to);
      at = next;
    }
    return ok_status();
  }

  // A function without `strict` whose schema cannot be honoured takes any object: its schema was a
  // wish.
  Status emit_arguments(ValueWriter& writer, const bj::object& function, std::size_t index,
                        StateId from, StateId to) {
    const bj::value* parameters = function.if_contains("parameters");
    if (parameters == nullptr) {
      b_.add_literal(from, "{}", to);
      return ok_status();
    }
    const std::string path = "tools[" + std::to_string(index) + "].function.parameters";
    SchemaCompiler schema(b_, writer, *parameters, path);
    const auto rule = schema.compile(true);
    if (rule.ok()) {
      b_.add_call(from, *rule, to);
      return ok_status();
    }
    const auto& strict = constraint_.strict_tools;
    const bool is_strict = std::find(strict.begin(), strict.end(),
                                     view(function.at("name").as_string())) != strict.end();
    if (is_strict || rule.error().code != ErrorCode::kUnsupported) return rule.error();
    b_.add_call(from, writer.any_object(), to);
    return ok_status();
  }

  AutomatonBuilder b_;
  const Constraint& constraint_;
  const bj::value& tools_;
  const std::optional<CallSyntax>& calls_;
};

// Where a run of single ways on is spelt by a longer token, the distance is one token, not one per
// byte.
std::vector<Jump> find_jumps(const Automaton& a, const Vocabulary& vocabulary) {
  std::vector<Jump> out;
  const auto trie = vocabulary.trie();
  std::array<std::uint32_t, 256> of_root{};
  for (std::uint32_t i = 1; i < trie.size(); i = trie[i].end) of_root[trie[i].byte] = i;
  const auto only_edge = [&a](StateId s) -> const Edge* {
    if (a.ends_rule[s] != 0 || a.first_edge[s + 1] - a.first_edge[s] != 1) return nullptr;
    const Edge& edge = a.edges[a.first_edge[s]];
    return edge.kind == Edge::Kind::kByte && edge.lo == edge.hi ? &edge : nullptr;
  };
  for (StateId s = 0; s < a.num_states(); ++s) {
    const Edge* edge = only_edge(s);
    if (edge == nullptr) continue;
    std::uint32_t node = of_root[edge->lo];
    std::optional<StateId> longest;
    while (node != 0) {
      const StateId reached = edge->target;
      if (trie[node].num_tokens != 0 && trie[node].depth > 1) longest = reached;
      edge = only_edge(reached);
      if (edge == nullptr) break;
      std::uint32_t child = node + 1;
      while (child < trie[node].end && trie[child].byte < edge->lo) child = trie[child].end;
      node = child < trie[node].end && trie[child].byte == edge->lo ? child : 0;
    }
    if (longest) out.push_back({s, *longest});
  }
  return out;
}

std::string key_of(const Constraint& c, const bj::value& tools) {
  bj::object key;
  key["kind"] = static_cast<int>(c.kind);
  key["schema"] = c.schema;
  key["text"] = c.text;
  bj::array choices;
  for (const std::string& choice : c.choices) choices.emplace_back(choice);
  key["choices"] = std::move(choices);
  key["calls"] = static_cast<int>(c.calls);
  key["function"] = c.function;
  key["parallel"] = c.parallel;
  bj::array strict;
  for (const std::string& name : c.strict_tools) strict.emplace_back(name);
  key["strict"] = std::move(strict);
  if (c.calls != Constraint::Calls::kFree) key["tools"] = tools;
  return bj::serialize(key);
}

}  // namespace

Result<std::shared_ptr<CompiledGrammar>> compile(const Constraint& constraint,
                                                 const bj::value& tools,
                                                 const std::optional<CallSyntax>& calls,
                                                 std::shared_ptr<const Vocabulary> vocabulary) {
  FLOTILLA_TRY(Automaton automaton, ConstraintCompiler(constraint, tools, calls).run());
  compute_distances(automaton, find_jumps(automaton, *vocabulary));
  return std::make_shared<CompiledGrammar>(std::move(automaton), std::move(vocabulary));
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCache::get(const Constraint& constraint,
                                                                 const bj::value& tools) {
  std::string key = key_of(constraint, tools);
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = by_key_.find(key); it != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->grammar;
    }
  }
  // Two threads may compile the same one at once; the first result stays.
  FLOTILLA_TRY(std::shared_ptr<CompiledGrammar> made,
               compile(constraint, tools, calls_, vocabulary_));
  const std::lock_guard lock(mutex_);
  if (const auto it = by_key_.find(key); it != by_key_.end()) return it->second->grammar;
  entries_.push_front({std::move(key), std::move(made)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  std::size_t bytes = 0;
  std::size_t kept = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    bytes += it->grammar->memory_bytes() + it->key.size();
    if (kept > 0 && (bytes > kMaxBytes || kept >= kMaxEntries)) {
      by_key_.erase(it->key);
      it = entries_.erase(it);
    } else {
      ++kept;
      ++it;
    }
  }
  return entries_.front().grammar;
}

std::size_t GrammarCache::num_entries() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace flotilla::grammar
