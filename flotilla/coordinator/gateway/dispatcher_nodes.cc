// Nodes that come and go.
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::coordinator {
namespace {

Error revocation(const std::string& node) {
  return link_error(protocol::LinkFault::kRevokedNode,
                    "the invitation of node '" + node + "' was revoked");
}

// The numerics ids of its loaded models, each once: nodes that share one can continue each other's
// answers.
std::string numerics_of(const protocol::Register& message) {
  std::string ids;
  for (const protocol::ModelOffer& offer : message.models) {
    if (offer.numerics_id.empty() || ids.find(offer.numerics_id) != std::string::npos) continue;
    ids += (ids.empty() ? "" : ",") + offer.numerics_id;
  }
  return ids;
}

}  // namespace

void Dispatcher::node_joined(JoinedNode node, const protocol::Register& message) {
  if (revoked_.contains(node.id)) {  // while its handshake was under way
    node.link->close(revocation(node.node));
    return;
  }
  if (ProviderRecord* old = registry_.find(node.id)) {
    // The node is back before its old connection was found dead.
    const std::shared_ptr<NodeLink> old_link = old->link;
    node_closed(node.id, old_link.get(), "replaced");
    old_link->close({ErrorCode::kUnavailable, "the node connected again"});
  }
  auto record = std::make_unique<ProviderRecord>();
  record->id = node.id;
  record->node = node.node;
  record->software = message.software;
  record->link = std::move(node.link);
  record->hardware = message.hardware;
  record->shows_progress = message.progress_interval_ms > 0;
  record->last_frame = clock_.now();
  ProviderRecord& provider = registry_.add(std::move(record));
  cool(provider, clock_.now());
  set_models(provider, message, /*fresh=*/true);
  protocol::Registered reply;
  reply.provider = provider.id.value;
  reply.heartbeat_interval_ms = static_cast<std::uint32_t>(limits_.heartbeat_interval.count());
  reply.dead_after_ms = static_cast<std::uint32_t>(limits_.dead_after.count());
  provider.link->send(std::move(reply), {}, 0);
  log::info("provider_registered", {{"node", provider.node},
                                    {"provider", provider.id.value},
                                    {"software", provider.software},
                                    {"models", message.models.size()},
                                    {"faults", machines_.num_faults(provider.id)},
                                    {"numerics", numerics_of(message)}});
  metrics_.node_connected();
  ask_about_earlier_jobs(provider, message);
  on_models_changed_();
  pump_all();
  update_gauges();
}

void Dispatcher::set_models(ProviderRecord& provider, const protocol::Register& message,
                            bool fresh) {
  registry_.set_models(provider, message.models);
  for (auto& [model, slot] : provider.slots) {
    if (slot.load.decode_tokens_per_s == 0) machines_.recall_speed(provider.id, slot.load);
    if (!fresh) continue;
    slot.history = machines_.recall_history(provider.id, model);
    registry_.reindex(provider, model);
  }
}

void Dispatcher::set_catalog(std::shared_ptr<const CatalogView> catalog) {
  registry_.set_catalog(std::move(catalog));
  on_models_changed_();
  pump_all();
}

void Dispatcher::node_closed(const ProviderId& id, const NodeLink* from, const std::string& why) {
  ProviderRecord* provider = registry_.find(id);
  if (provider == nullptr || provider->link.get() != from) return;
  const std::vector<JobId> jobs(provider->jobs.begin(), provider->jobs.end());
  log::info(
      "provider_lost",
      {{"node", provider->node}, {"provider", id.value}, {"why", why}, {"jobs", jobs.size()}});
  const bool planned = provider->draining || why == "revoked" || why == "stopping";
  metrics_.node_lost(provider->draining                                ? "drained"
                     : why == "replaced" || why == "silent" || planned ? why
                                                                       : "closed");
  if (!planned) machines_.fault(id, clock_.now());
  for (const auto& [model, slot] : provider->slots)
    machines_.keep_history(id, model, slot.history, clock_.now());
  table_.drop_cancelled_of(id);
  // First out of the index, so that no job is given to it again.
  provider->draining = true;
  registry_.reindex_all(*provider);
  for (const JobId& job_id : jobs) {
    Job* job = table_.job(job_id);
    if (job == nullptr) continue;
    if (job->provider != provider) {  // only its hedge was here
      drop_hedge(*job, End::kDone, "lost");
      continue;
    }
    if (job->hedge) {  // somebody else is asked already
      promote_hedge(*job, End::kDone, "lost");
      continue;
    }
    job->provider = nullptr;
    metrics_.attempt_ended("lost");
  }
  registry_.remove(id);
  warm_.forget(id);
  on_models_changed_();
  for (const JobId& job_id : jobs) {
    Job* job = table_.job(job_id);
    if (job == nullptr || job->provider != nullptr) continue;
    const RequestId request = job->request;
    attempt_failed(*job, End::kDone, "",
                   {ErrorCode::kUnavailable, "the node that served this request was lost"},
                   planned ? Blame::kNobody : Blame::kBadLuck, jobs.size());
    erase_if_done(request);
  }
  update_gauges();
}

void Dispatcher::set_access(const std::unordered_set<ProviderId>& valid,
                            std::unordered_set<ProviderId> revoked) {
  revoked_ = std::move(revoked);
  for (ProviderRecord* provider : registry_.providers()) {
    if (valid.contains(provider->id)) continue;
    const std::shared_ptr<NodeLink> link = provider->link;
    const ProviderId id = provider->id;
    link->close(revocation(provider->node));
    node_closed(id, link.get(), "revoked");
  }
}

void Dispatcher::drain_nodes(std::chrono::milliseconds deadline) {
  for (ProviderRecord* provider : registry_.providers()) {
    protocol::Drain drain;
    drain.deadline_ms = static_cast<std::uint32_t>(deadline.count());
    drain.reason = "the coordinator is stopping";
    provider->link->send(std::move(drain), {}, 0);
  }
}

void Dispatcher::drop_nodes() {
  for (ProviderRecord* provider : registry_.providers()) {
    const std::shared_ptr<NodeLink> link = provider->link;
    node_closed(ProviderId(provider->id), link.get(), "stopping");
  }
}

}  // namespace flotilla::coordinator
