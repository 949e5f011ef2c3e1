// Invited nodes in the database.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct NodeRecord {
  std::string name;
  protocol::PublicKey invite_key;
  std::optional<protocol::PublicKey> public_key;
  std::int64_t invited = 0;
  std::optional<std::int64_t> joined;
  std::optional<std::int64_t> revoked;

  protocol::KnownNode known() const { return {name, invite_key, public_key, revoked.has_value()}; }
};

// Makes the invitation and returns its secret. A name that was revoked, or has not joined yet, gets
// a new invitation and the old token is void; one that has joined is kAlreadyExists.
Result<protocol::Seed> invite_node(store::Database& database, const std::string& name,
                                   std::int64_t now);
Result<std::vector<NodeRecord>> list_nodes(store::Database& database);
Result<std::optional<NodeRecord>> find_node(store::Database& database, const std::string& name);
Status revoke_node(store::Database& database, const std::string& name, std::int64_t now);
// At the first join. kPermissionDenied when the name was bound to another key, revoked or invited
// anew meanwhile.
Status bind_node(store::Database& database, const protocol::KnownNode& known,
                 const protocol::PublicKey& key, std::int64_t now);

}  // namespace flotilla::coordinator
