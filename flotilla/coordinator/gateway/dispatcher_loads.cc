// Which models nodes hold: loads by demand, orders of the fleet's owner, and what nodes report.
#include <algorithm>

#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"

namespace flotilla::coordinator {
namespace {
constexpr std::chrono::milliseconds kPlanEvery{500};
}

void Dispatcher::plan_loads(Clock::Instant now) {
  if (now - last_plan_ < kPlanEvery) return;
  plan_loads_now();
}

void Dispatcher::plan_loads_now() {
  last_plan_ = clock_.now();
  std::vector<Wanted> wanted;
  for (const auto& [model, queue] : queues_) wanted.push_back({model, queue.size()});
  if (wanted.empty()) return;
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::pair(b.num_queued, std::string_view(a.model)) <
           std::pair(a.num_queued, std::string_view(b.model));
  });
  bool changed = false;
  for (const WarmOrder& order : warm_.plan(wanted)) {
    changed = changed || order.what == WarmOrder::What::kUnload;
    send_order(order, "demand");
  }
  if (changed) on_models_changed_();
}

void Dispatcher::send_order(const WarmOrder& order, std::string_view why) {
  const bool is_load = order.what == WarmOrder::What::kLoad;
  log::info(is_load ? "load_ordered" : "unload_ordered",
            {{"node", order.provider->node}, {"model", order.model}, {"why", why}});
  metrics_.load_ordered(is_load ? "load" : "unload", why);
  if (is_load) {
    order.provider->link->send(protocol::Load{order.model}, {}, 0);
  } else {
    order.provider->link->send(protocol::Unload{order.model}, {}, 0);
  }
}

Status Dispatcher::order(WarmOrder::What what, const std::string& node, const std::string& model) {
  ProviderRecord* found = nullptr;
  for (ProviderRecord* provider : registry_.providers()) {
    if (provider->node == node || provider->id.value == node) found = provider;
  }
  if (found == nullptr) {
    return Error{ErrorCode::kNotFound, "no node of the name '" + node + "' is connected", "node"};
  }
  const auto slot = found->slots.find(model);
  if (slot == found->slots.end() || !slot->second.listed) {
    return Error{ErrorCode::kNotFound,
                 "node '" + node + "' does not have the model '" + model + "'", "model"};
  }
  if (what == WarmOrder::What::kUnload) {
    // Nothing more is given to it; what runs on it goes on. And demand does not undo it at once.
    slot->second.offer.loaded = false;
    registry_.reindex(*found, model);
    warm_.leave_alone(found->id, model);
    on_models_changed_();
  } else if (!slot->second.offer.loaded && !slot->second.loading_since) {
    slot->second.loading_since = clock_.now();
  }
  send_order({what, found, model}, "owner");
  return ok_status();
}

void Dispatcher::on_model_status(ProviderRecord& provider, const protocol::ModelStatus& message) {
  const auto slot = provider.slots.find(message.model);
  if (slot == provider.slots.end()) return;
  const std::optional<Error> failure =
      message.error ? std::optional(protocol::from_wire(*message.error)) : std::nullopt;
  if (message.state == protocol::ModelState::kFailed) {
    log::warn("load_failed", {{"node", provider.node},
                              {"model", message.model},
                              {"code", failure ? flotilla::to_string(failure->code) : "unknown"}});
  }
  warm_.on_status(provider, message.model, message.state, failure ? &*failure : nullptr);
  slot->second.offer.loaded = message.state == protocol::ModelState::kLoaded;
  registry_.reindex(provider, message.model);
  on_models_changed_();
  pump(message.model);
}

std::vector<serving::ModelEntry> Dispatcher::models() const {
  std::vector<serving::ModelEntry> entries = registry_.entries();
  std::vector<serving::ModelEntry> more;
  for (const std::string& name : registry_.listed_models()) {
    const bool resident = std::any_of(entries.begin(), entries.end(),
                                      [&](const auto& entry) { return entry.id == name; });
    if (resident || !warm_.may_load(name)) continue;
    more.emplace_back();
    more.back().id = name;
    if (const CatalogEntry* entry = registry_.catalog().active(name)) {
      more.back().created = entry->created;
      more.back().context_length = entry->context_length;
      more.back().capabilities = entry->capabilities;
    }
  }
  entries.insert(entries.end(), more.begin(), more.end());
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return entries;
}

}  // namespace flotilla::coordinator
