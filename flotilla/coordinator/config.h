// Settings of `flotilla-coordinator serve`. Defaults here; file, environment and flags fill it
// (apps/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/coordinator/routing/warm_pool.h"
#include "flotilla/gates/reason.h"

namespace flotilla::coordinator {

struct CoordinatorConfig {
  std::string listen = "127.0.0.1:8080";  // clients, and nodes unless link_listen is set
  std::string link_listen;                // nodes
  std::string database = "flotilla-coordinator.sqlite";  // or postgresql://...
  std::string identity_file;                             // empty: the database's path and ".key"
  std::string tls_certificate_file;
  std::string tls_key_file;
  bool insecure = false;  // allow plain HTTP on addresses other than loopback
  std::vector<std::string> allowed_origins;
  std::string admin_key;  // or @FILE; empty: the admin API is off

  std::int64_t io_threads = 2;
  std::int64_t max_body_mib = 12;  // a link carries at most 16 MiB per message
  std::int64_t keepalive_after_s = 10;
  std::int64_t queue_timeout_s = 30;
  std::int64_t max_queued_per_model = 1'024;
  std::int64_t hedge_after_ms = 2'000;  // 0: never
  std::int64_t first_token_timeout_s = 600;
  std::int64_t stall_timeout_s = 120;
  // "off", "shadow" or "on"; docs/admission.md
  std::string warm_pool = "load";  // "off", "load" or "swap"
  std::string hardware_gate = "shadow";
  std::string load_gate = "shadow";
  std::string state_gate = "shadow";
  bool catalog_only = false;               // models outside the catalog are not served
  std::string catalog_downloads = "keys";  // who may fetch models: "keys" or "admin"
  std::int64_t drain_timeout_s = 60;

  std::int64_t fee_basis_points = 0;  // of every charge, in hundredths of a percent
  std::int64_t recovery_s = 120;      // jobs of an earlier run wait so long for their nodes
  std::int64_t jobs_days = 90;        // retention; 0: for ever
  std::int64_t ledger_days = 400;
  std::int64_t usage_days = 0;

  std::string log_level = "info";
  std::string log_format = "text";  // or "json"

  std::string identity_path() const {
    return identity_file.empty() ? database + ".key" : identity_file;
  }
  bool has_tls() const { return !tls_certificate_file.empty(); }
};

struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
  bool is_loopback() const;
};

// "127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0" (0: any free port).
Result<ListenAddress> parse_listen_address(const std::string& text);

// What `warm_pool` says.
Result<WarmMode> warm_mode(const CoordinatorConfig& config);
// What the three settings of gates say.
Result<gates::Modes> gate_modes(const CoordinatorConfig& config);

// Cross-checks: TLS files in pairs, plain only on loopback unless insecure, addresses, origins.
Status validate(const CoordinatorConfig& config);

}  // namespace flotilla::coordinator
