// What the database says about keys, nodes and models, kept fresh by its own thread: a change that
// a command made is seen within the polling interval.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/auth/api_key_store.h"
#include "flotilla/coordinator/registry/node_directory.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/store/worker.h"

namespace flotilla::coordinator {

// Thread-safe.
class AccessStore final : public NodeDirectory {
 public:
  // Revoked or rebound nodes may be connected still.
  using NodesChanged = std::function<void(std::vector<NodeRecord>)>;

  // Loads once before it returns. `keys` and `clock` must outlive it; `on_nodes` runs on the
  // database's thread.
  static Result<std::unique_ptr<AccessStore>> open(store::Database database, ApiKeyStore& keys,
                                                   const Clock& clock, NodesChanged on_nodes);
  ~AccessStore() override;

  // Loads again if something changed. Never blocks.
  void poll();
  // Remembers that nodes serve these models now. Never blocks; lost when the database is busy.
  void note_models(std::vector<std::string> names);

  void find(const std::string& name,
            std::function<void(Result<std::optional<protocol::KnownNode>>)> done) override;
  void bind(const protocol::KnownNode& known, const protocol::PublicKey& key,
            std::function<void(Status)> done) override;

 private:
  AccessStore(store::Database database, ApiKeyStore& keys, const Clock& clock,
              NodesChanged on_nodes);
  Status load_if_changed(store::Database& database);

  ApiKeyStore& keys_;
  const Clock& clock_;
  const NodesChanged on_nodes_;
  std::int64_t loaded_change_ = -1;  // on the database's thread
  std::atomic<bool> poll_queued_{false};
  std::unique_ptr<store::Worker> worker_;  // last: its thread uses the rest
};

}  // namespace flotilla::coordinator
