// The whole coordinator: builds its parts in order, wires them, takes them down in reverse.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "flotilla/base/clock.h"
#include "flotilla/base/result.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/net/io_runtime.h"

namespace flotilla::coordinator {

class CoordinatorApp {
 public:
  // Listens when it returns. `clock` must outlive it.
  static Result<std::unique_ptr<CoordinatorApp>> start(const CoordinatorConfig& config,
                                                       const Clock& clock);
  ~CoordinatorApp();  // ends what is still running

  std::uint16_t port() const;
  std::uint16_t link_port() const;
  net::IoRuntime& io();

  // Connections made from now on use the files' present content; on error the old certificate
  // stays.
  Status reload_certificate();
  // No new requests; waits for running ones, at most the configured time or until `hurry` says so.
  void drain(const std::function<bool()>& hurry);

 private:
  struct Impl;
  explicit CoordinatorApp(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::coordinator
