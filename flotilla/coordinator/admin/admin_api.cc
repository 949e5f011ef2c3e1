#include "flotilla/coordinator/admin/admin_api.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "flotilla/coordinator/admin/explain_json.h"
#include "flotilla/coordinator/admin/query.h"
#include "flotilla/serving/replies.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

bj::object model_json(const std::string& name, const ModelSlot& slot) {
  return {{"model", name},
          {"loaded", slot.offer.loaded},
          {"healthy", slot.load.healthy && !slot.stuck},
          {"model_digest", slot.offer.model_digest},
          {"numerics_id", slot.offer.numerics_id},
          {"context_length", slot.offer.context_length},
          {"slots", slot.offer.max_concurrent},
          {"slots_taken", slot.num_attempts},
          {"resident_bytes", slot.offer.resident_bytes},
          {"state_bytes_used", slot.load.kv_bytes_used},
          {"state_bytes", slot.load.kv_bytes_total},
          {"decode_tokens_per_s", slot.load.decode_tokens_per_s},
          {"prefill_tokens_per_s", slot.load.prefill_tokens_per_s}};
}

bj::object node_json(const ProviderRecord& provider, Clock::Instant now) {
  const auto ms = [](Clock::Instant::duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  bj::array models;
  std::vector<std::string> names;
  for (const auto& [name, slot] : provider.slots) {
    if (slot.listed) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) models.push_back(model_json(name, provider.slots.at(name)));
  return {{"node", provider.node},
          {"provider", provider.id.value},
          {"software", provider.software},
          {"cpu", provider.hardware.cpu},
          {"accelerator", provider.hardware.accelerator},
          {"threads", provider.hardware.num_threads},
          {"memory_bytes", provider.hardware.memory_bytes},
          {"memory_cap_bytes", provider.hardware.memory_cap_bytes},
          {"jobs", provider.jobs.size()},
          {"draining", provider.draining},
          {"silent", provider.silent},
          {"cooling_ms",
           provider.cooling() ? std::max<std::int64_t>(0, ms(provider.cooling_until - now)) : 0},
          {"last_heard_ms", ms(now - provider.last_frame)},
          {"models", std::move(models)}};
}

Result<std::int64_t> number(const std::string& query, const std::string& name,
                            std::int64_t otherwise) {
  const auto text = query_value(query, name);
  if (!text) return otherwise;
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), value);
  constexpr std::int64_t kMost = 1'000'000'000;
  if (parsed.ec != std::errc{} || parsed.ptr != text->data() + text->size() || value < 1 ||
      value > kMost) {
    return Error{ErrorCode::kInvalidArgument,
                 name + " is a whole number from 1 to " + std::to_string(kMost), name};
  }
  return value;
}

}  // namespace

AdminApi::AdminApi(const AdminAccess& access, CorePost core, Dispatcher& dispatcher,
                   const Clock& clock)
    : access_(access), core_(std::move(core)), dispatcher_(dispatcher), clock_(clock) {}

void AdminApi::on_core(serving::ExtraRoute::Reply reply, Answer make) const {
  core_([reply = std::move(reply), make = std::move(make)] { reply(make()); });
}

std::vector<serving::ExtraRoute> AdminApi::routes() const {
  const auto admit = [this](const net::HttpRequest& request) {
    return access_.check(request.headers);
  };
  const auto orders = [this](WarmOrder::What what) {
    return [this, what](const net::HttpRequest& request, serving::ExtraRoute::Reply reply) {
      on_core(std::move(reply), [this, what, query = request.query] { return order(what, query); });
    };
  };
  return {{"POST", "/v1/admin/load", "admin_load", admit, orders(WarmOrder::What::kLoad)},
          {"POST", "/v1/admin/unload", "admin_unload", admit, orders(WarmOrder::What::kUnload)},
          {"GET", "/v1/admin/nodes", "admin_nodes", admit,
           [this](const net::HttpRequest&, serving::ExtraRoute::Reply reply) {
             on_core(std::move(reply), [this] { return nodes(); });
           }},
          {"GET", "/v1/admin/explain", "admin_explain", admit,
           [this](const net::HttpRequest& request, serving::ExtraRoute::Reply reply) {
             on_core(std::move(reply), [this, query = request.query] { return explain(query); });
           }}};
}

net::HttpResponse AdminApi::order(WarmOrder::What what, const std::string& query) const {
  const auto node = query_value(query, "node"), model = query_value(query, "model");
  for (const auto& [name, value] : {std::pair("node", &node), std::pair("model", &model)}) {
    if (!*value || (*value)->empty()) {
      return serving::error_reply(
          {ErrorCode::kInvalidArgument, std::string(name) + " is missing", name});
    }
  }
  if (Status done = dispatcher_.order(what, *node, *model); !done.ok())
    return serving::error_reply(done.error());
  return serving::json_reply(202, R"({"status":"ordered"})");
}

net::HttpResponse AdminApi::explain(const std::string& query) const {
  auto model = query_value(query, "model");
  if (!model || model->empty()) {
    return serving::error_reply({ErrorCode::kInvalidArgument, "model is missing", "model"});
  }
  const CatalogView& catalog = dispatcher_.registry().catalog();
  model = catalog.resolve(*model);
  const auto tokens = number(query, "prompt_tokens", kUsualPrompt);
  const auto answer = number(query, "max_tokens", 0);
  if (!tokens.ok()) return serving::error_reply(tokens.error());
  if (!answer.ok()) return serving::error_reply(answer.error());
  const auto node = query_value(query, "node");
  if (dispatcher_.registry().model(*model) == nullptr) {
    return serving::error_reply(
        {ErrorCode::kNotFound, "no node has listed the model '" + *model + "'", "model"});
  }
  const Explanation explanation = coordinator::explain(dispatcher_.registry(), dispatcher_.router(),
                                                       *model, *tokens, *answer, node);
  if (node && explanation.nodes.empty()) {
    return serving::error_reply(
        {ErrorCode::kNotFound, "no node of the name '" + *node + "' is connected", "node"});
  }
  return serving::json_reply(
      200, bj::serialize(explain_json(explanation, *model, dispatcher_.num_queued(*model), catalog,
                                      clock_.now())));
}

net::HttpResponse AdminApi::nodes() const {
  std::vector<ProviderRecord*> providers = dispatcher_.registry().providers();
  std::sort(providers.begin(), providers.end(),
            [](const auto* a, const auto* b) { return a->node < b->node; });
  bj::array data;
  for (const ProviderRecord* provider : providers)
    data.push_back(node_json(*provider, clock_.now()));
  return serving::json_reply(
      200, bj::serialize(bj::object{{"object", "list"}, {"data", std::move(data)}}));
}

}  // namespace flotilla::coordinator
