#include "flotilla/coordinator/registry/access_store.h"

#include "flotilla/coordinator/registry/model_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/log/log.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxQueued = 4'096;

Error too_busy() {
  return Error{ErrorCode::kUnavailable, "the database has too much to do; try again"};
}

}  // namespace

Result<std::unique_ptr<AccessStore>> AccessStore::open(store::Database database, ApiKeyStore& keys,
                                                       const Clock& clock, NodesChanged on_nodes) {
  FLOTILLA_TRY(const std::vector<KeyRecord> first, list_keys(database));
  keys.load(first);
  return std::unique_ptr<AccessStore>(
      new AccessStore(std::move(database), keys, clock, std::move(on_nodes)));
}

AccessStore::AccessStore(store::Database database, ApiKeyStore& keys, const Clock& clock,
                         NodesChanged on_nodes)
    : keys_(keys),
      clock_(clock),
      on_nodes_(std::move(on_nodes)),
      worker_(std::make_unique<store::Worker>(std::move(database), kMaxQueued)) {}

AccessStore::~AccessStore() = default;

void AccessStore::poll() {
  if (poll_queued_.exchange(true)) return;
  const bool queued = worker_->try_post([this](store::Database& database) {
    poll_queued_ = false;
    if (Status status = load_if_changed(database); !status.ok()) {
      // What is known stays in force.
      log::error("access_reload_failed", {{"reason", status.error().message}});
    }
  });
  if (!queued) poll_queued_ = false;
}

void AccessStore::note_models(std::vector<std::string> names) {
  worker_->try_post([this, names = std::move(names)](store::Database& database) {
    if (Status noted = note_seen_models(database, names, clock_.unix_seconds()); !noted.ok()) {
      log::warn("models_not_noted", {{"reason", noted.error().message}});
    }
  });
}

Status AccessStore::load_if_changed(store::Database& database) {
  FLOTILLA_TRY(const std::int64_t change, change_count(database));
  if (change == loaded_change_) return ok_status();
  FLOTILLA_TRY(const std::vector<KeyRecord> keys, list_keys(database));
  FLOTILLA_TRY(std::vector<NodeRecord> nodes, list_nodes(database));
  keys_.load(keys);
  on_nodes_(std::move(nodes));
  loaded_change_ = change;
  return ok_status();
}

void AccessStore::find(const std::string& name,
                       std::function<void(Result<std::optional<protocol::KnownNode>>)> done) {
  const bool queued = worker_->try_post([name, done](store::Database& database) {
    auto record = find_node(database, name);
    if (!record.ok()) return done(std::move(record).error());
    if (!record->has_value()) return done(std::optional<protocol::KnownNode>());
    done(std::optional<protocol::KnownNode>((*record)->known()));
  });
  if (!queued) done(too_busy());
}

void AccessStore::bind(const protocol::KnownNode& known, const protocol::PublicKey& key,
                       std::function<void(Status)> done) {
  const bool queued = worker_->try_post([this, known, key, done](store::Database& database) {
    done(bind_node(database, known, key, clock_.unix_seconds()));
  });
  if (!queued) done(too_busy());
}

}  // namespace flotilla::coordinator
