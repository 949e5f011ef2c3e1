#include "flotilla/chat/jinja_ast.h"

#include <utility>

namespace flotilla::chat {

namespace {

void take_children(Expression& node, std::vector<ExpressionPtr>& out) {
  const auto take = [&out](ExpressionPtr& child) {
    if (child) out.push_back(std::move(child));
  };
  for (auto& child : node.children) take(child);
  for (auto& child : node.args.positional) take(child);
  for (auto& child : node.args.named) take(child.second);
  take(node.args.star);
  take(node.args.double_star);
}

}  // namespace

Expression::~Expression() {
  std::vector<ExpressionPtr> pending;
  take_children(*this, pending);
  while (!pending.empty()) {
    const ExpressionPtr node = std::move(pending.back());
    pending.pop_back();
    take_children(*node, pending);
  }
}

}  // namespace flotilla::chat
