// The ChatBackend of `flotilla serve`: engines in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/provider/model_manager.h"
#include "flotilla/provider/worker_pool.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::provider {

struct LocalBackendOptions {
  std::vector<std::string> api_keys;  // none: everybody is the local user
  int prepare_threads = 2;            // rendering and tokenising
  std::size_t max_preparing = 256;    // beyond it requests are refused
};

// Thread-safe. `models` and `clock` must outlive it; its streams may not outlive it.
class LocalBackend final : public serving::ChatBackend {
 public:
  LocalBackend(ModelManager& models, const Clock& clock, LocalBackendOptions options);
  ~LocalBackend() override;

  std::vector<serving::ModelEntry> models() const override;
  std::unique_ptr<serving::ChatStream> start(
      api::ChatRequest request, const serving::Caller& caller,
      std::function<bool(serving::ChatEvent)> on_event) override;
  Result<serving::Caller> authenticate(std::optional<std::string_view> key) const override;
  bool ready(std::string* why_not) const override;

 private:
  ModelManager& models_;
  const Clock& clock_;
  const LocalBackendOptions options_;
  WorkerPool workers_;
  WorkerPool refusals_;  // events never come from inside start(), not even this one
};

}  // namespace flotilla::provider
