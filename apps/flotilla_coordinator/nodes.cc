#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/join_token.h"

namespace flotilla::apps {
namespace {

// A mistyped name must not become an empty database that knows nothing.
constexpr store::DatabaseOptions kExisting{.create = false};

struct Arguments {
  coordinator::CoordinatorConfig config;
  std::string name;
  std::string url;
  std::string tls_public_key;
  std::string tls_certificate;
  std::string owner;
  bool quiet = false;
};

Status check_url(const std::string& url) {
  if (url.empty() || url.starts_with("wss://") || url.starts_with("ws://")) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "--url '" + url + "' must start with wss:// (or ws:// on one machine)"};
}

Status invite(const Arguments& arguments) {
  FLOTILLA_TRY_STATUS(check_url(arguments.url));
  FLOTILLA_TRY(store::Database database, coordinator::open_database(arguments.config.database));
  FLOTILLA_TRY(const auto identity,
               protocol::Identity::load_or_create(arguments.config.identity_path()));
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
  if (!arguments.quiet) {
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
  FLOTILLA_TRY(store::Database database,
               coordinator::open_database(arguments.config.database, kExisting));
  const bool is_given = !arguments.owner.empty();
  FLOTILLA_TRY_STATUS(coordinator::set_node_owner(
      database, arguments.name,
      is_given ? std::optional<std::string>(arguments.owner) : std::nullopt));
  if (!arguments.quiet) {
    std::printf("Node '%s' earns for %s from now on.\n", arguments.name.c_str(),
                is_given ? ("account '" + arguments.owner + "'").c_str() : "the operator");
  }
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database,
               coordinator::open_database(arguments.config.database, kExisting));
  FLOTILLA_TRY(const auto nodes, coordinator::list_nodes(database));
  if (!arguments.quiet) {
    std::printf("%s%s%s%s\n", padded("NAME", 26).c_str(), padded("STATE", 10).c_str(),
                padded("KEY", 18).c_str(), "SINCE (UTC)");
  }
  for (const auto& node : nodes) {
    const char* state = node.revoked ? "revoked" : node.public_key ? "joined" : "invited";
    const std::int64_t since = node.revoked ? *node.revoked : node.joined.value_or(node.invited);
    std::printf("%s%s%s%s\n", padded(node.name + " ", 26).c_str(), padded(state, 10).c_str(),
                padded(node.public_key ? protocol::fingerprint(*node.public_key) : "-", 18).c_str(),
                date_text(since).c_str());
  }
  return ok_status();
}

Status revoke(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database,
               coordinator::open_database(arguments.config.database, kExisting));
  FLOTILLA_TRY_STATUS(
      coordinator::revoke_node(database, arguments.name, SystemClock().unix_seconds()));
  if (!arguments.quiet) {
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
  const auto add = [&](const char* name, const char* help, Status (*run)(const Arguments&)) {
    CLI::App* command = nodes->add_subcommand(name, help);
    command
        ->add_option("--database", arguments->config.database,
                     "the coordinator's: a SQLite file or postgresql://...")
        ->envname("FLOTILLA_DATABASE")
        ->capture_default_str();
    command->add_flag("-q,--quiet", arguments->quiet, "print only what a script needs");
    command->callback([arguments, run, &exit_code] {
      if (Status status = run(*arguments); !status.ok()) exit_code = complain(status.error());
    });
    return command;
  };
  CLI::App* inviting = add("invite", "Make a join token and print it, once", invite);
  inviting->add_option("name", arguments->name, "name of the machine")->required();
  inviting->add_option("--url", arguments->url,
                       "address to put into the token: wss://HOST:PORT/v1/link");
  inviting
      ->add_option("--identity-file", arguments->config.identity_file,
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
