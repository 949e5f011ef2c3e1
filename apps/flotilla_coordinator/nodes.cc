#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "apps/flotilla_coordinator/database_command.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/join_token.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  DatabaseTarget target;
  std::string identity_file;  // empty: beside the database
  std::string name;
  std::string url;
  std::string tls_public_key;
  std::string tls_certificate;
  std::string owner;
};

Status check_url(const std::string& url) {
  if (url.empty() || url.starts_with("wss://") || url.starts_with("ws://")) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "--url '" + url + "' must start with wss:// (or ws:// on one machine)"};
}

Status invite(const Arguments& arguments) {
  FLOTILLA_TRY_STATUS(check_url(arguments.url));
  FLOTILLA_TRY(store::Database database, arguments.target.open());
  coordinator::CoordinatorConfig config;
  config.database = arguments.target.database;
  config.identity_file = arguments.identity_file;
  FLOTILLA_TRY(const auto identity, protocol::Identity::load_or_create(config.identity_path()));
  protocol::JoinToken token;
  token.coordinator_key = identity.public_key();
  token.node = arguments.name;
  token.url = arguments.url;
  token.tls_public_key = arguments.tls_public_key;
  if (!arguments.tls_certificate.empty()) {
    FLOTILLA_TRY(token.tls_public_key, net::public_key_pin(arguments.tls_certificate));
  }
  FLOTILLA_TRY_STATUS(protocol::check_node_name(token.node));
  if (!arguments.owner.empty()) {
    FLOTILLA_TRY(const auto owner, coordinator::find_account(database, arguments.owner));
    (void)owner;
  }
  FLOTILLA_TRY(token.secret,
               coordinator::invite_node(database, arguments.name, SystemClock().unix_seconds()));
  if (!arguments.owner.empty()) {
    FLOTILLA_TRY_STATUS(coordinator::set_node_owner(database, arguments.name, arguments.owner));
  }
  FLOTILLA_TRY(const std::string text, protocol::to_text(token));
  std::printf("%s\n", text.c_str());
  if (!arguments.target.quiet) {
    std::fprintf(stderr,
                 "\nThis join token lets one machine join as '%s'. Keep it secret until then. On "
                 "that machine:\n"
                 "  flotilla provider --join TOKEN%s --models-dir DIR\n",
                 arguments.name.c_str(),
                 arguments.url.empty() ? " --coordinator wss://HOST:PORT/v1/link" : "");
  }
  return ok_status();
}

Status own(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  const bool is_given = !arguments.owner.empty();
  FLOTILLA_TRY_STATUS(coordinator::set_node_owner(
      database, arguments.name,
      is_given ? std::optional<std::string>(arguments.owner) : std::nullopt));
  if (!arguments.target.quiet) {
    std::printf("Node '%s' earns for %s from now on.\n", arguments.name.c_str(),
                is_given ? ("account '" + arguments.owner + "'").c_str() : "the operator");
  }
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const auto nodes, coordinator::list_nodes(database));
  const std::vector<std::size_t> columns{26, 10, 18};
  if (!arguments.target.quiet) print_row(columns, {"NAME", "STATE", "KEY", "SINCE (UTC)"});
  for (const auto& node : nodes) {
    const char* state = node.revoked ? "revoked" : node.public_key ? "joined" : "invited";
    const std::int64_t since = node.revoked ? *node.revoked : node.joined.value_or(node.invited);
    const std::string key = node.public_key ? protocol::fingerprint(*node.public_key) : "-";
    print_row(columns, {node.name, state, key, date_text(since)});
  }
  return ok_status();
}

Status revoke(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY_STATUS(
      coordinator::revoke_node(database, arguments.name, SystemClock().unix_seconds()));
  if (!arguments.target.quiet) {
    std::printf("Node '%s' is revoked; a running server cuts it within a second.\n",
                arguments.name.c_str());
  }
  return ok_status();
}

}  // namespace

void add_nodes(CLI::App& app, int& exit_code) {
  CLI::App* nodes = app.add_subcommand("nodes", "Machines that may join");
  nodes->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = database_commands(*nodes, arguments, exit_code);
  CLI::App* inviting = add("invite", "Make a join token and print it, once", invite);
  inviting->add_option("name", arguments->name, "name of the machine")->required();
  inviting->add_option("--url", arguments->url,
                       "address to put into the token: wss://HOST:PORT/v1/link");
  inviting
      ->add_option("--identity-file", arguments->identity_file,
                   "the coordinator's own key (default: DATABASE.key)")
      ->envname("FLOTILLA_IDENTITY_FILE");
  inviting->add_option("--owner", arguments->owner, "account that the node earns for");
  inviting->add_option(
      "--tls-public-key", arguments->tls_public_key,
      "hex SHA-256 of the server certificate's public key, for one that no CA signed");
  inviting
      ->add_option("--tls-certificate", arguments->tls_certificate, "the certificate itself (PEM)")
      ->type_name("FILE")
      ->excludes("--tls-public-key");
  add("list", "List invited nodes", list);
  CLI::App* owning = add("owner", "Say which account a node earns for", own);
  owning->add_option("name", arguments->name, "name of the machine")->required();
  owning->add_option("account", arguments->owner, "the account; without it the operator");
  add("revoke", "Turn a node away", revoke)
      ->add_option("name", arguments->name, "name of the machine")
      ->required();
}

}  // namespace flotilla::apps
