#include "flotilla/coordinator/coordinator_app.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/coordinator/admin/admin_api.h"
#include "flotilla/coordinator/catalog/catalog_routes.h"
#include "flotilla/coordinator/catalog/catalog_table.h"
#include "flotilla/coordinator/gateway/gateway.h"
#include "flotilla/coordinator/link/link_acceptor.h"
#include "flotilla/coordinator/money/bank_till.h"
#include "flotilla/coordinator/money/money_routes.h"
#include "flotilla/coordinator/money/recovery.h"
#include "flotilla/coordinator/registry/access_store.h"
#include "flotilla/coordinator/registry/model_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/log/log.h"
#include "flotilla/net/http.h"
#include "flotilla/serving/http_surface.h"
#include "flotilla/serving/replies.h"
#include "flotilla/store/claim.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kSleptThrough = 500ms;
constexpr auto kNoteModels = 1h;  // how stale the database may be about a model that is served
constexpr auto kFlushTime = 1s;   // for the last answers at shutdown
constexpr auto kAccessPoll = 200ms;
constexpr auto kHandshakeTimeout = 10s;
constexpr store::DatabaseOptions kServerOptions{.answer_timeout_ms = 10'000};
constexpr store::DatabaseOptions kReaderOptions{.answer_timeout_ms = 60'000};  // long lists
constexpr auto kClaimPatience = 5s;  // a server that is going needs a moment
constexpr auto kKeepClaim = 5s;
constexpr std::size_t kMaxQuestions = 256;  // about keys and usage, waiting for the database

DispatchLimits limits_of(const CoordinatorConfig& config) {
  DispatchLimits limits;
  limits.queue_timeout = std::chrono::seconds(config.queue_timeout_s);
  limits.hedge_after = std::chrono::milliseconds(config.hedge_after_ms);
  limits.first_token_timeout = std::chrono::seconds(config.first_token_timeout_s);
  limits.stall_timeout = std::chrono::seconds(config.stall_timeout_s);
  limits.slept_through = kSleptThrough;
  limits.gates = *gate_modes(config);  // validated
  limits.warm.mode = *warm_mode(config);
  limits.max_queued_per_model = static_cast<std::size_t>(config.max_queued_per_model);
  return limits;
}

// An alias is listed while its model is.
void add_aliases(std::vector<serving::ModelEntry>& models, const CatalogView& catalog) {
  for (const auto& [name, model] : catalog.aliases()) {
    const std::string& alias = name;  // Clang 14 lets no lambda have a structured binding
    std::erase_if(models, [&alias](const auto& entry) { return entry.id == alias; });
    for (std::size_t i = 0; i < models.size(); ++i) {
      if (models[i].id != model) continue;
      models.push_back(models[i]);
      models.back().id = alias;
      break;
    }
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
}

// What another one is told that wants the same database.
std::string own_name() {
  std::array<char, 40> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = 0;
  return "flotilla-coordinator " + std::string(host.data()) + " pid " + std::to_string(::getpid());
}

BankOptions bank_options(const CoordinatorConfig& config) {
  BankOptions options;
  options.fee_basis_points = config.fee_basis_points;
  options.recovery_s = config.recovery_s;
  options.retention = {config.jobs_days, config.ledger_days, config.usage_days};
  return options;
}

serving::SurfaceOptions surface_options(const CoordinatorConfig& config, const Metrics& metrics,
                                        std::vector<serving::ExtraRoute> extra_routes) {
  serving::SurfaceOptions options;
  options.session.max_body_bytes = static_cast<std::size_t>(config.max_body_mib) << 20;
  options.session.keepalive_after = std::chrono::seconds(config.keepalive_after_s);
  options.allowed_origins = config.allowed_origins;
  options.metrics = [&metrics] { return metrics.render(); };
  options.extra_routes = std::move(extra_routes);
  return options;
}

net::HttpServerOptions server_options(const CoordinatorConfig& config,
                                      const ListenAddress& address) {
  net::HttpServerOptions options;
  options.host = address.host;
  options.port = address.port;
  if (config.has_tls())
    options.tls = net::TlsFiles{config.tls_certificate_file, config.tls_key_file};
  options.max_body_bytes = static_cast<std::size_t>(config.max_body_mib) << 20;
  // The largest message of a node is Tokens; strangers get no larger buffer.
  options.max_ws_message_bytes = kMaxMessageBytes;
  return options;
}

}  // namespace

// Members are destroyed from the last to the first: the servers, then the surface and the
// database's thread, then the I/O threads, and only then what their tasks refer to.
struct CoordinatorApp::Impl {
  Impl(const CoordinatorConfig& c, const Clock& k, store::Claim one, protocol::Identity id,
       const std::string& admin_key)
      : config(c),
        claim(std::move(one)),
        clock(k),
        identity(std::move(id)),
        dispatcher(clock, metrics, limits_of(c), [this] { models_changed(); }),
        gateway(core_post(), dispatcher, keys, clock),
        admin_access(admin_key),
        admin(admin_access, core_post(), dispatcher, clock),
        io(static_cast<int>(c.io_threads)),
        core(io),
        ticker(core),
        poller(core) {}

  ~Impl() {
    link_server.reset();
    server.reset();
    if (!started) return;
    on_core([this] {
      dispatcher.fail_all({ErrorCode::kUnavailable, "the coordinator is shutting down"});
    });
    surface.reset();
    on_core([this] {
      ticker.cancel();
      poller.cancel();
      dispatcher.drop_nodes();
    });
    access.reset();
    reader.reset();
    // What is still being reserved was for jobs that are gone: it is given back, then nothing more
    // comes.
    bank->wait_until_answered();
    on_core([this] {
      dispatcher.set_till(nullptr);
      dispatcher.set_recall({});
    });
    bank.reset();
    stopping = true;
  }

  CorePost core_post() {
    return [this](std::function<void()> task) {
      if (!stopping) core.post(std::move(task));
    };
  }
  // Runs `task` on the core strand and waits for it. Not from an I/O thread.
  void on_core(std::function<void()> task) {
    std::promise<void> done;
    core.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  Status start(store::Database database);
  Status open_bank();
  void models_changed() {
    std::vector<serving::ModelEntry> models = dispatcher.models();
    note_models(models);
    add_aliases(models, dispatcher.registry().catalog());
    gateway.publish_models(std::move(models));
  }
  void note_models(const std::vector<serving::ModelEntry>& models) {
    std::vector<std::string> fresh;
    const auto now = clock.now();
    for (const serving::ModelEntry& model : models) {
      const auto [at, is_new] = models_noted.try_emplace(model.id, now);
      if (!is_new && now - at->second < kNoteModels) continue;
      at->second = now;
      fresh.push_back(model.id);
    }
    if (!fresh.empty() && access) access->note_models(std::move(fresh));
  }
  void tick() {
    dispatcher.tick();
    recovery->tick();
    if (const auto now = clock.now(); now - noted >= kNoteModels) {
      noted = now;
      note_models(dispatcher.models());
    }
    if (const auto now = clock.now(); now - claim_kept >= kKeepClaim) {
      claim_kept = now;
      bank->post([this](store::Database&) {
        if (Status kept = claim.keep(); !kept.ok())
          log::warn("claim_not_kept", {{"reason", kept.error().message}});
      });
    }
    links->tick();
    metrics.set_api_keys(keys.num_active());
    ticker.after(kTick, [this] { tick(); });
  }
  void poll() {
    access->poll();
    poller.after(kAccessPoll, [this] { poll(); });
  }
  // On the database's thread.
  void nodes_changed(const std::vector<NodeRecord>& nodes) {
    std::unordered_set<ProviderId> valid, revoked;
    for (const NodeRecord& node : nodes) {
      if (node.public_key)
        (node.revoked ? revoked : valid).insert(protocol::provider_id(*node.public_key));
    }
    core_post()([this, valid = std::move(valid), revoked = std::move(revoked)] {
      dispatcher.set_access(valid, revoked);
    });
  }

  const CoordinatorConfig config;
  store::Claim claim;  // the bank's thread
  const Clock& clock;
  const protocol::Identity identity;
  std::atomic<bool> stopping{false};
  bool started = false;
  std::unordered_map<std::string, Clock::Instant> models_noted;  // core strand
  Clock::Instant noted{}, claim_kept{};                          // core strand
  Metrics metrics;
  ApiKeyStore keys;
  RateLimits limits{clock};
  Catalog catalog{config.catalog_only};
  Dispatcher dispatcher;  // on the core strand
  Gateway gateway;
  const AdminAccess admin_access;
  const AdminApi admin;
  net::IoRuntime io;
  net::Strand core;
  net::Timer ticker, poller;
  std::unique_ptr<Bank> bank;
  std::unique_ptr<BankTill> till;      // core strand
  std::unique_ptr<Recovery> recovery;  // core strand
  std::unique_ptr<AccessStore> access;
  std::unique_ptr<store::Worker> reader;
  std::unique_ptr<LinkAcceptor> links;
  FileServer files;
  std::unique_ptr<serving::HttpSurface> surface;
  std::unique_ptr<net::HttpServer> server, link_server;
};

Status CoordinatorApp::Impl::open_bank() {
  FLOTILLA_TRY(store::Database for_bank, open_database(config.database, kServerOptions));
  FLOTILLA_TRY(store::Database for_reader, open_database(config.database, kReaderOptions));
  BankOptions options = bank_options(config);
  // Nobody is left whose jobs could be paid for here.
  options.on_superseded = [this] {
    gateway.set_draining();
    core_post()([this] { dispatcher.start_drain(); });
  };
  FLOTILLA_TRY(bank,
               Bank::open(std::move(for_bank), clock, std::move(options),
                          [this](std::shared_ptr<const MoneyView> view) { limits.set(*view); }));
  reader = std::make_unique<store::Worker>(std::move(for_reader), kMaxQuestions);
  till = std::make_unique<BankTill>(*bank, limits, clock, core_post());
  recovery = std::make_unique<Recovery>(*bank, clock, std::chrono::seconds(config.recovery_s));
  gateway.set_limits(&limits);
  dispatcher.set_till(till.get());
  dispatcher.set_recall({[this](const ProviderId& node) { return recovery->questions(node); },
                         [this](const ProviderId& node, const protocol::Recalled& report) {
                           recovery->on_report(node, report);
                         }});
  return ok_status();
}

Status CoordinatorApp::Impl::start(store::Database database) {
  FLOTILLA_TRY(const auto seen,
               list_seen_models(database, clock.unix_seconds() - kModelMemorySeconds));
  for (const std::string& model : seen) dispatcher.know_model(model);
  FLOTILLA_TRY(const Catalog::View view, load_catalog(database, config.catalog_only));
  dispatcher.registry().set_catalog(view);
  catalog.set(view, [] {});
  catalog.on_change([this](Catalog::View fresh, std::function<void()> then) {
    core_post()([this, fresh = std::move(fresh), then = std::move(then)] {
      dispatcher.set_catalog(fresh);
      then();
    });
  });
  gateway.set_catalog(&catalog);
  FLOTILLA_TRY(access,
               AccessStore::open(std::move(database), keys, clock,
                                 [this](std::vector<NodeRecord> nodes) { nodes_changed(nodes); }));
  FLOTILLA_TRY_STATUS(open_bank());
  started = true;
  links = std::make_unique<LinkAcceptor>(
      NodeSession::Context{identity, *access, clock, metrics, dispatcher, core_post()},
      kHandshakeTimeout);
  std::vector<serving::ExtraRoute> routes = admin.routes();
  for (serving::ExtraRoute& route : money_routes({*reader, *bank, keys, admin_access, clock}))
    routes.push_back(std::move(route));
  for (serving::ExtraRoute& route : catalog_routes(
           {*bank, catalog, files, keys, admin_access, clock, config.catalog_downloads == "keys"}))
    routes.push_back(std::move(route));
  surface =
      std::make_unique<serving::HttpSurface>(gateway, clock, serving::make_net_lanes(io),
                                             surface_options(config, metrics, std::move(routes)));
  FLOTILLA_TRY(const ListenAddress address, parse_listen_address(config.listen));
  server = std::make_unique<net::HttpServer>(io, server_options(config, address),
                                             surface->handler(), serving::protocol_error_reply);
  server->set_head_check(
      [this](const net::HttpRequest& head) { return surface->check_head(head); });
  if (config.link_listen.empty()) {
    server->set_ws_acceptor(links->acceptor());
  } else {
    FLOTILLA_TRY(const ListenAddress link_address, parse_listen_address(config.link_listen));
    const auto nodes_only = [] {
      return serving::protocol_error_reply(404, "only nodes are served at this address");
    };
    link_server = std::make_unique<net::HttpServer>(
        io, server_options(config, link_address),
        [nodes_only](std::shared_ptr<net::HttpExchange> exchange) { exchange->send(nodes_only()); },
        serving::protocol_error_reply);
    link_server->set_head_check(
        [nodes_only](const net::HttpRequest&) { return std::optional(nodes_only()); });
    link_server->set_ws_acceptor(links->acceptor());
    FLOTILLA_TRY_STATUS(link_server->start());
  }
  FLOTILLA_TRY_STATUS(server->start());
  core.post([this] {
    tick();
    poll();
  });
  return ok_status();
}

CoordinatorApp::CoordinatorApp(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorApp::~CoordinatorApp() = default;

Result<std::unique_ptr<CoordinatorApp>> CoordinatorApp::start(const CoordinatorConfig& config,
                                                              const Clock& clock) {
  FLOTILLA_TRY_STATUS(validate(config));
  FLOTILLA_TRY(store::Claim claim, store::Claim::take(config.database, own_name(), kClaimPatience));
  // First: no key is made for a database that cannot be used.
  FLOTILLA_TRY(store::Database database, open_database(config.database, kServerOptions));
  FLOTILLA_TRY(protocol::Identity identity,
               protocol::Identity::load_or_create(config.identity_path()));
  FLOTILLA_TRY(const std::string admin_key, read_admin_key(config.admin_key));
  auto impl =
      std::make_unique<Impl>(config, clock, std::move(claim), std::move(identity), admin_key);
  FLOTILLA_TRY_STATUS(impl->start(std::move(database)));
  log::info("coordinator_listening", {{"address", config.listen},
                                      {"database", store::display_name(config.database)},
                                      {"port", impl->server->port()},
                                      {"tls", config.has_tls()},
                                      {"key", protocol::fingerprint(impl->identity.public_key())},
                                      {"api_keys", impl->keys.num_active()},
                                      {"admin", impl->admin_access.enabled()}});
  if (impl->keys.num_active() == 0) {
    log::warn("no_api_keys", {{"hint", "flotilla-coordinator keys create --name NAME --database " +
                                           store::display_name(config.database)}});
  }
  return std::unique_ptr<CoordinatorApp>(new CoordinatorApp(std::move(impl)));
}

std::uint16_t CoordinatorApp::port() const { return impl_->server->port(); }

std::uint16_t CoordinatorApp::link_port() const {
  return impl_->link_server ? impl_->link_server->port() : impl_->server->port();
}

net::IoRuntime& CoordinatorApp::io() { return impl_->io; }

Status CoordinatorApp::reload_certificate() {
  if (!impl_->config.has_tls()) return ok_status();
  FLOTILLA_TRY_STATUS(impl_->server->reload_certificate());
  if (impl_->link_server) FLOTILLA_TRY_STATUS(impl_->link_server->reload_certificate());
  return ok_status();
}

void CoordinatorApp::drain(const std::function<bool()>& hurry) {
  impl_->gateway.set_draining();
  std::size_t num_jobs = 0;
  impl_->on_core([&] {
    impl_->dispatcher.start_drain();
    num_jobs = impl_->dispatcher.table().num_requests();
  });
  log::info("coordinator_draining", {{"requests", num_jobs}});
  const auto deadline = impl_->clock.now() + std::chrono::seconds(impl_->config.drain_timeout_s);
  while ((num_jobs > 0 || impl_->surface->num_running() > 0) && impl_->clock.now() < deadline &&
         !hurry()) {
    std::this_thread::sleep_for(20ms);
    impl_->on_core([&] { num_jobs = impl_->dispatcher.table().num_requests(); });
  }
  // What is still running is told so, and its nodes are told to stop, before either link is cut.
  impl_->server->stop_accepting();
  impl_->surface->stop();
  impl_->server->flush(kFlushTime);
  impl_->links->stop();
  impl_->on_core([&] { impl_->dispatcher.drain_nodes(0ms); });
}

}  // namespace flotilla::coordinator
