// What a node keeps on disk: its key and its join token.
#pragma once

#include <string>
#include <utility>

#include "flotilla/base/result.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/join_token.h"

namespace flotilla::apps {

// $XDG_STATE_HOME/flotilla, else ~/.local/state/flotilla, else ./flotilla-state.
std::string default_state_dir();

struct NodeState {
  protocol::Identity identity;
  protocol::JoinToken token;
  std::string new_token = {};  // the text of a token that is not kept yet
};

// `join` is a token, "@FILE", or empty: the one that was kept.
Result<NodeState> open_node_state(const std::string& dir, const std::string& join);
// Keeps a token (mode 0600) beside the key, so that the node starts without it from then on. To be
// done when the coordinator has taken the node: a wrong token must not replace a good one.
Status keep_token(const std::string& dir, const std::string& text);

// Held while a node runs: two with one identity would push each other off the link for ever.
class NodeLock {
 public:
  // kAlreadyExists when another process holds it. The folder must exist.
  static Result<NodeLock> take(const std::string& dir);
  ~NodeLock();
  NodeLock(NodeLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  NodeLock& operator=(NodeLock&&) = delete;

 private:
  explicit NodeLock(int fd) : fd_(fd) {}
  int fd_;
};

// True when `dir` holds a join token: this machine is a node of a fleet.
bool has_node_state(const std::string& dir);

}  // namespace flotilla::apps
