#include "flotilla/coordinator/registry/node_table.h"

#include "flotilla/coordinator/schema.h"
#include "flotilla/protocol/join_token.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::coordinator {
namespace {

constexpr std::string_view kColumns =
    "SELECT name, invite_key, public_key, invited, joined, revoked FROM nodes";

Result<NodeRecord> read(const store::Row& row) {
  NodeRecord record;
  record.name = row.text(0);
  FLOTILLA_TRY(record.invite_key, protocol::public_key_from_text(row.text(1)));
  if (!row.is_null(2)) {
    FLOTILLA_TRY(record.public_key, protocol::public_key_from_text(row.text(2)));
  }
  record.invited = row.integer(3);
  if (!row.is_null(4)) record.joined = row.integer(4);
  if (!row.is_null(5)) record.revoked = row.integer(5);
  return record;
}

}  // namespace

Result<protocol::Seed> invite_node(store::Database& database, const std::string& name,
                                   std::int64_t now) {
  FLOTILLA_TRY_STATUS(protocol::check_node_name(name));
  const protocol::Seed secret = protocol::random_seed();
  const std::string invite_key = to_text(protocol::Identity::from_seed(secret).public_key());
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto present, find_node(database, name));
    if (present && present->public_key && !present->revoked) {
      return Error{
          ErrorCode::kAlreadyExists,
          "node '" + name +
              "' has joined already; to give its name to another machine run: nodes revoke " +
              name};
    }
    // Its owner stays.
    auto made = present
                    ? database.execute(
                          "UPDATE nodes SET invite_key = :p2, invited = :p3, public_key = NULL, "
                          "joined = NULL, revoked = NULL WHERE name = :p1",
                          {name, invite_key, now})
                    : database.execute(
                          "INSERT INTO nodes (name, invite_key, invited) VALUES (:p1, :p2, :p3)",
                          {name, invite_key, now});
    if (!made.ok()) return std::move(made).error();
    return note_change(database);
  }));
  return secret;
}

Result<std::vector<NodeRecord>> list_nodes(store::Database& database) {
  FLOTILLA_TRY(const auto rows, database.query(std::string(kColumns) + " ORDER BY name"));
  std::vector<NodeRecord> nodes;
  for (const store::Row& row : rows) {
    FLOTILLA_TRY(NodeRecord record, read(row));
    nodes.push_back(std::move(record));
  }
  return nodes;
}

Result<std::optional<NodeRecord>> find_node(store::Database& database, const std::string& name) {
  FLOTILLA_TRY(const auto rows,
               database.query(std::string(kColumns) + " WHERE name = :p1", {name}));
  if (rows.empty()) return std::optional<NodeRecord>();
  FLOTILLA_TRY(NodeRecord record, read(rows[0]));
  return std::optional<NodeRecord>(std::move(record));
}

Status revoke_node(store::Database& database, const std::string& name, std::int64_t now) {
  return database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto present, find_node(database, name));
    if (!present) return Error{ErrorCode::kNotFound, "no node named '" + name + "'"};
    if (present->revoked) return ok_status();
    auto done = database.execute("UPDATE nodes SET revoked = :p1 WHERE name = :p2", {now, name});
    if (!done.ok()) return std::move(done).error();
    return note_change(database);
  });
}

Status bind_node(store::Database& database, const protocol::KnownNode& known,
                 const protocol::PublicKey& key, std::int64_t now) {
  // One statement decides, so that of two machines with the same token only one gets the name.
  auto done = database.execute(
      "UPDATE nodes SET public_key = :p1, joined = :p2 "
      "WHERE name = :p3 AND invite_key = :p4 AND public_key IS NULL AND revoked IS NULL",
      {to_text(key), now, known.node, to_text(known.invite_key)});
  if (!done.ok()) return std::move(done).error();
  if (*done == 1) return note_change(database);  // whom it earns for is known by its key
  // The same machine may have connected twice at once.
  FLOTILLA_TRY(const auto present, find_node(database, known.node));
  if (present && !present->revoked && present->public_key == key) return ok_status();
  return link_error(protocol::LinkFault::kBadInvite,
                    "the join token of node '" + known.node + "' was used or replaced meanwhile");
}

}  // namespace flotilla::coordinator
