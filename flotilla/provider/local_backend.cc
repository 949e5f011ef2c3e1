#include "flotilla/provider/local_backend.h"

#include <algorithm>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/text.h"
#include "flotilla/provider/local_stream.h"

namespace flotilla::provider {

LocalBackend::LocalBackend(ModelManager& models, const Clock& clock, LocalBackendOptions options)
    : models_(models),
      clock_(clock),
      options_(std::move(options)),
      workers_(options_.prepare_threads, options_.max_preparing),
      refusals_(1, 1u << 20) {}

LocalBackend::~LocalBackend() = default;

std::vector<serving::ModelEntry> LocalBackend::models() const {
  std::vector<serving::ModelEntry> entries;
  for (const ModelRecord& record : models_.list()) {
    if (!record.engine) continue;
    serving::ModelEntry entry;
    entry.id = record.name;
    entry.created = record.since;
    entry.context_length = record.engine->info().context_length;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::unique_ptr<serving::ChatStream> LocalBackend::start(
    api::ChatRequest request, const serving::Caller& caller,
    std::function<bool(serving::ChatEvent)> on_event) {
  fix_at_admission(request, clock_.unix_seconds());
  std::string model = request.model;
  auto run = std::make_shared<LocalRun>(std::move(request), caller.tenant, std::move(on_event));
  const bool queued = workers_.try_post([this, run, model = std::move(model)] {
    auto engine = models_.find(model);
    if (!engine.ok()) return run->fail(engine.error());
    run->prepare_and_submit(std::move(*engine));
  });
  if (!queued) {
    const bool told = refusals_.try_post([run] {
      run->fail(
          Error{ErrorCode::kResourceExhausted, "too many requests are waiting to be prepared"});
    });
    FLOTILLA_CHECK(told, "more refusals than connections");
  }
  return std::make_unique<LocalStream>(std::move(run));
}

Result<serving::Caller> LocalBackend::authenticate(std::optional<std::string_view> key) const {
  serving::Caller caller;
  caller.tenant = "local";
  if (options_.api_keys.empty()) return caller;
  if (!key) return Error{ErrorCode::kUnauthenticated, "this server needs an API key"};
  std::size_t found = 0;
  // All are compared, so that the time does not tell which one matched.
  for (std::size_t i = 0; i < options_.api_keys.size(); ++i) {
    if (equal_constant_time(options_.api_keys[i], *key)) found = i + 1;
  }
  if (found == 0) return Error{ErrorCode::kUnauthenticated, "this API key is not known"};
  caller.key_id = found;
  caller.tenant = "key-" + std::to_string(found);
  return caller;
}

bool LocalBackend::ready(std::string* why_not) const {
  const auto say = [&](std::string text) {
    if (why_not) *why_not = std::move(text);
    return false;
  };
  const std::vector<ModelRecord> records = models_.list();
  if (records.empty()) return say("no model is configured");
  for (const ModelRecord& record : records) {
    if (record.engine && !record.engine->healthy())
      return say("model '" + record.name + "' is not healthy");
  }
  if (std::none_of(records.begin(), records.end(),
                   [](const ModelRecord& r) { return r.engine != nullptr; })) {
    return say("no model is loaded");
  }
  return true;
}

}  // namespace flotilla::provider
