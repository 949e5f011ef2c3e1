#include "flotilla/coordinator/admin/explain_json.h"

#include <boost/json.hpp>
#include <cmath>

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

// Three decimals are more than anybody knows.
double in_ms(double seconds) { return std::round(seconds * 1e6) / 1e3; }

bj::object part_json(const TimePart& part, Clock::Instant now) {
  bj::object out{{"ms", in_ms(part.seconds)}, {"source", to_string(part.source)}};
  if (part.at == Clock::Instant{}) {
    out["age_ms"] = nullptr;
  } else {
    out["age_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(now - part.at).count();
  }
  return out;
}

bj::object expected_json(const Router::Expectation& expected, Clock::Instant now) {
  return {{"first_content_ms", in_ms(expected.time.seconds())},
          {"saved_tokens", expected.saved_tokens},
          {"network", part_json(expected.time.network, now)},
          {"wait", part_json(expected.time.wait, now)},
          {"load", part_json(expected.time.load, now)},
          {"prefill", part_json(expected.time.prefill, now)}};
}

bj::value reason_json(gates::Reason reason) {
  return reason == gates::Reason::kNone ? bj::value(nullptr) : bj::value(to_string(reason));
}

// What the gates and the versions are told; null: the catalog has no active version.
bj::value catalog_json(const CatalogEntry* entry) {
  if (entry == nullptr) return nullptr;
  bj::array ignored;
  for (const std::string& one : entry->runtime.ignored) ignored.emplace_back(one);
  return bj::object{
      {"version", entry->version},
      {"digest", entry->digest},
      {"bytes", entry->bytes()},
      {"min_memory_bytes", entry->min_memory_bytes},
      {"resident_bytes", entry->runtime.resident_bytes ? bj::value(*entry->runtime.resident_bytes)
                                                       : bj::value(nullptr)},
      {"ignored", std::move(ignored)}};
}

bj::object node_json(const NodeExplanation& node, const std::string& model, Clock::Instant now) {
  const gates::Verdict& verdict = node.verdict;
  bj::object out{{"node", node.provider->node},
                 {"provider", node.provider->id.value},
                 {"chosen", node.chosen},
                 {"reason", reason_json(verdict.reason)},
                 {"permanent", gates::is_permanent(verdict.reason)},
                 {"shadow", reason_json(verdict.shadow)},
                 {"needed", verdict.needed},
                 {"available", verdict.available}};
  if (verdict.changes_in) {
    out["changes_in_ms"] = verdict.changes_in->count();
  } else {
    out["changes_in_ms"] = nullptr;
  }
  const auto slot = node.provider->slots.find(model);
  if (slot == node.provider->slots.end() || !slot->second.listed) {
    out["expected"] = nullptr;
    return out;
  }
  out["loaded"] = slot->second.offer.loaded;
  out["model_digest"] = slot->second.offer.model_digest;
  out["version"] = slot->second.version > 0 ? bj::value(slot->second.version) : bj::value(nullptr);
  out["slots"] = slot->second.offer.max_concurrent;
  out["slots_taken"] = slot->second.num_attempts;
  out["expected"] = expected_json(node.expected, now);
  return out;
}

}  // namespace

bj::object explain_json(const Explanation& explanation, const std::string& model,
                        std::size_t num_queued, const CatalogView& catalog, Clock::Instant now) {
  bj::object counts;
  for (std::size_t i = 0; i < gates::kNumReasons; ++i) {
    const auto reason = static_cast<gates::Reason>(i);
    if (const auto count = count_of(explanation.outlook.counts(), reason))
      counts[reason == gates::Reason::kNone ? "candidate" : to_string(reason)] = count;
  }
  bj::array nodes;
  for (const NodeExplanation& node : explanation.nodes)
    nodes.push_back(node_json(node, model, now));
  return {{"model", model},
          {"catalog", catalog_json(catalog.active(model))},
          {"prompt_tokens", explanation.prompt_tokens},
          {"queued", num_queued},
          {"counts", std::move(counts)},
          {"nodes", std::move(nodes)}};
}

}  // namespace flotilla::coordinator
