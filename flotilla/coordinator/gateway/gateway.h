// The coordinator's ChatBackend: admits requests and hands them to the dispatcher on the core
// strand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/auth/api_key_store.h"
#include "flotilla/coordinator/catalog/catalog.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/coordinator/money/rate_limits.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::coordinator {

// Runs a task on the core strand, in order. From any thread.
using CorePost = std::function<void(std::function<void()>)>;

// Thread-safe. Everything it is given must outlive it and the streams it started.
class Gateway final : public serving::ChatBackend {
 public:
  Gateway(CorePost core, Dispatcher& dispatcher, const ApiKeyStore& keys, const Clock& clock);

  std::vector<serving::ModelEntry> models() const override;
  std::unique_ptr<serving::ChatStream> start(
      api::ChatRequest request, const serving::Caller& caller,
      std::function<bool(serving::ChatEvent)> on_event) override;
  Result<serving::Caller> authenticate(std::optional<std::string_view> key) const override;
  bool ready(std::string* why_not) const override;

  void publish_models(std::vector<serving::ModelEntry> models);
  // Requests beyond them are refused. Before the first request; must outlive the gateway.
  void set_limits(RateLimits* limits) { limits_ = limits; }
  // Which names clients may ask for, and what they mean. As above.
  void set_catalog(const Catalog* catalog) { catalog_ = catalog; }
  void set_draining() { draining_ = true; }

 private:
  std::unique_ptr<serving::ChatStream> refuse(Error why, std::int64_t num_choices,
                                              std::function<bool(serving::ChatEvent)> on_event);

  const CorePost core_;
  Dispatcher& dispatcher_;  // core strand only
  const ApiKeyStore& keys_;
  const Clock& clock_;
  RateLimits* limits_ = nullptr;
  const Catalog* catalog_ = nullptr;
  std::atomic<std::uint64_t> num_requests_{0};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::vector<serving::ModelEntry> models_;  // guarded by mutex_
};

}  // namespace flotilla::coordinator
