#include "flotilla/coordinator/routing/explain.h"

#include <algorithm>
#include <tuple>

namespace flotilla::coordinator {

Explanation explain(ProviderRegistry& registry, const Router& router, const std::string& model,
                    std::int64_t prompt_tokens, std::int64_t max_tokens,
                    const std::optional<std::string>& node) {
  Explanation out;
  RouteAsk ask;
  ask.prompt_tokens = prompt_tokens;
  ask.max_tokens = max_tokens;
  const RouteWish wish{.ask = &ask};
  out.prompt_tokens = prompt_tokens;
  const ProviderRecord* chosen = router.best(model, wish).provider;
  for (const ProviderRecord* provider : registry.providers()) {
    NodeExplanation one;
    one.provider = provider;
    one.chosen = provider == chosen;
    one.verdict = router.judge(*provider, model, wish);
    one.expected = router.expect(*provider, model, wish);
    out.outlook.add(one.verdict);
    if (!node || provider->node == *node) out.nodes.push_back(std::move(one));
  }
  std::sort(out.nodes.begin(), out.nodes.end(),
            [](const NodeExplanation& a, const NodeExplanation& b) {
              const auto place = [](const NodeExplanation& n) {
                return std::tuple(!n.chosen, n.verdict.reason != gates::Reason::kNone,
                                  n.expected.time.seconds(), std::string_view(n.provider->node));
              };
              return place(a) < place(b);
            });
  return out;
}

}  // namespace flotilla::coordinator
