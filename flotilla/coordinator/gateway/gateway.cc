#include "flotilla/coordinator/gateway/gateway.h"

#include <sodium.h>

#include "flotilla/base/check.h"

namespace flotilla::coordinator {
namespace {

std::uint64_t random_seed() {
  FLOTILLA_CHECK(sodium_init() >= 0, "libsodium could not be initialised");
  std::uint64_t seed = 0;
  randombytes_buf(&seed, sizeof seed);
  return seed;
}

class GatewayStream final : public serving::ChatStream {
 public:
  GatewayStream(CorePost core, Dispatcher& dispatcher, RequestId id)
      : core_(std::move(core)), dispatcher_(dispatcher), id_(id) {}
  ~GatewayStream() override { cancel(); }
  void cancel() override {
    if (cancelled_.exchange(true)) return;
    core_([&dispatcher = dispatcher_, id = id_] { dispatcher.cancel(id); });
  }
  void taken() override {
    if (cancelled_.exchange(true)) return;
    core_([&dispatcher = dispatcher_, id = id_] { dispatcher.taken(id); });
  }
  void resume() override {
    core_([&dispatcher = dispatcher_, id = id_] { dispatcher.resume(id); });
  }

 private:
  const CorePost core_;
  Dispatcher& dispatcher_;
  const RequestId id_;
  std::atomic<bool> cancelled_{false};
};

// A request that was not let in: only its refusal is under way.
class RefusedStream final : public serving::ChatStream {
 public:
  ~RefusedStream() override { cancel(); }
  void cancel() override { *cancelled_ = true; }
  void resume() override {}
  std::shared_ptr<std::atomic<bool>> cancelled() const { return cancelled_; }

 private:
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

Gateway::Gateway(CorePost core, Dispatcher& dispatcher, const ApiKeyStore& keys, const Clock& clock)
    : core_(std::move(core)), dispatcher_(dispatcher), keys_(keys), clock_(clock) {}

std::vector<serving::ModelEntry> Gateway::models() const {
  std::lock_guard lock(mutex_);
  return models_;
}

void Gateway::publish_models(std::vector<serving::ModelEntry> models) {
  std::lock_guard lock(mutex_);
  models_.swap(models);
}

std::unique_ptr<serving::ChatStream> Gateway::refuse(
    Error why, std::int64_t num_choices, std::function<bool(serving::ChatEvent)> on_event) {
  auto stream = std::make_unique<RefusedStream>();
  core_([refused = stream->cancelled(), why = std::move(why), num_choices,
         on_event = std::move(on_event)] {
    for (std::int64_t choice = 0; choice < num_choices && !*refused; ++choice) {
      serving::ChatEvent event;
      event.choice = static_cast<int>(choice);
      event.finish.emplace();
      event.finish->reason = serving::ChatFinish::Reason::kError;
      event.finish->error = why;
      (void)on_event(std::move(event));
    }
  });
  return stream;
}

std::unique_ptr<serving::ChatStream> Gateway::start(
    api::ChatRequest request, const serving::Caller& caller,
    std::function<bool(serving::ChatEvent)> on_event) {
  if (limits_ != nullptr && !request.count_only) {
    if (Status allowed = limits_->admit(AccountId{caller.account_id}, ApiKeyId{caller.key_id});
        !allowed.ok()) {
      return refuse(std::move(allowed).error(), request.n, std::move(on_event));
    }
  }
  if (catalog_ != nullptr) {
    const Catalog::View view = catalog_->view();
    request.model = view->resolve(request.model);
    if (Status allowed = view->allows(request.model); !allowed.ok())
      return refuse(std::move(allowed).error(), request.n, std::move(on_event));
  }
  // From here on the request is the same on every node and every attempt.
  request.sampling_seed = request.seed.value_or(random_seed());
  request.render_time = clock_.unix_seconds();
  auto prepare = std::make_shared<protocol::Prepare>();
  prepare->model = request.model;
  prepare->request = caller.request_id;
  prepare->tenant = caller.tenant;
  prepare->job = api::to_job_json(request);
  // The node gives it up when nobody here would wait for it any more.
  prepare->first_token_within_ms =
      static_cast<std::uint32_t>(dispatcher_.limits().first_token_timeout.count());
  Admission admission;
  admission.ask = std::make_shared<RouteAsk>(route_ask(request, caller.tenant));
  admission.id = RequestId{++num_requests_};
  admission.name = caller.request_id;
  admission.stream = request.stream;
  admission.num_choices = static_cast<std::uint32_t>(request.n);
  admission.prepare = std::move(prepare);
  admission.sink = std::move(on_event);
  admission.key = caller.key_id;
  admission.account = AccountId{caller.account_id};
  admission.is_free = request.count_only;
  const RequestId id = admission.id;
  core_([&dispatcher = dispatcher_, admission = std::make_shared<Admission>(std::move(admission))] {
    dispatcher.submit(std::move(*admission));
  });
  return std::make_unique<GatewayStream>(core_, dispatcher_, id);
}

Result<serving::Caller> Gateway::authenticate(std::optional<std::string_view> key) const {
  return keys_.authenticate(key, clock_.unix_seconds());
}

bool Gateway::ready(std::string* why_not) const {
  const auto because = [&](std::string_view reason) {
    if (why_not != nullptr) *why_not = reason;
    return false;
  };
  if (draining_) return because("the coordinator is shutting down");
  std::lock_guard lock(mutex_);
  if (models_.empty())
    return because("no node is connected that has a model loaded, or would load one when asked");
  return true;
}

}  // namespace flotilla::coordinator
