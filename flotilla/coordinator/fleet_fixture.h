// For tests: a dispatcher with nodes and clients in memory, and a clock that stands still.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "flotilla/coordinator/gateway/dispatcher.h"

namespace flotilla::coordinator {

// Records what it is sent.
struct FakeNode final : NodeLink {
  struct Sent {
    protocol::CoordinatorMessage message;
    JobId job;
    std::uint32_t attempt = 0;
  };
  struct Asked {
    std::shared_ptr<const protocol::Prepare> prepare;
    std::uint32_t choice = 0;
    JobId job;
    std::uint32_t attempt = 0;
  };
  void send(protocol::CoordinatorMessage message, const JobId& job,
            std::uint32_t attempt) override {
    sent.push_back({std::move(message), job, attempt});
  }
  void send_prepare(std::shared_ptr<const protocol::Prepare> prepare, std::uint32_t choice,
                    const JobId& job, std::uint32_t attempt) override {
    asked.push_back({std::move(prepare), choice, job, attempt});
  }
  void close(Error why) override { closed = std::move(why); }
  std::size_t queued_bytes() const override { return queued; }

  template <class M>
  std::vector<M> all() const {
    std::vector<M> out;
    for (const Sent& s : sent) {
      if (const M* m = std::get_if<M>(&s.message)) out.push_back(*m);
    }
    return out;
  }

  ProviderId id;
  std::vector<Sent> sent;
  std::vector<Asked> asked;
  std::optional<Error> closed;
  std::size_t queued = 0;
};

struct FakeClient {
  RequestId id;
  bool takes_more = true;
  std::vector<serving::ChatEvent> events;

  std::string text(int choice = 0) const {
    std::string out;
    for (const auto& e : events) {
      if (e.choice != choice) continue;
      for (const auto& d : e.deltas) out += d.text;
    }
    return out;
  }
  std::vector<serving::ChatFinish> finishes() const {
    std::vector<serving::ChatFinish> out;
    for (const auto& e : events) {
      if (e.finish) out.push_back(*e.finish);
    }
    return out;
  }
  // The error of the only finish; fails the test if there is another end.
  Error error() const {
    const auto ends = finishes();
    EXPECT_EQ(ends.size(), 1u);
    if (ends.size() != 1 || !ends[0].error) {
      ADD_FAILURE() << "no error";
      return {};
    }
    return *ends[0].error;
  }
};

class Fleet : public ::testing::Test {
 protected:
  static protocol::ModelOffer offer(const std::string& model, std::uint32_t max_concurrent) {
    protocol::ModelOffer out;
    out.id = model;
    out.max_concurrent = max_concurrent;
    out.context_length = 4096;
    out.model_digest = "weights of " + model;
    out.numerics_id = "cpu";
    return out;
  }

  std::shared_ptr<FakeNode> join(const std::string& name, std::uint32_t max_concurrent = 4,
                                 const std::vector<std::string>& models = {"m"}) {
    protocol::Register message;
    for (const std::string& model : models) message.models.push_back(offer(model, max_concurrent));
    return join(name, message);
  }
  std::shared_ptr<FakeNode> join(const std::string& name, const protocol::Register& message) {
    auto node = std::make_shared<FakeNode>();
    node->id = ProviderId{"id-" + name};
    dispatcher.node_joined({node->id, name, node}, message);
    return node;
  }
  // A node that shows progress, as real ones do.
  std::shared_ptr<FakeNode> join_lively(const std::string& name, std::uint32_t max_concurrent = 4) {
    protocol::Register message;
    message.models = {offer("m", max_concurrent)};
    message.progress_interval_ms = 250;
    return join(name, message);
  }

  std::shared_ptr<FakeClient> ask(bool stream = true, std::uint32_t n = 1,
                                  const std::string& model = "m", std::uint64_t key = 0) {
    auto client = std::make_shared<FakeClient>();
    client->id = RequestId{++num_requests};
    auto prepare = std::make_shared<protocol::Prepare>();
    prepare->model = model;
    const auto sink = [client](serving::ChatEvent event) {
      client->events.push_back(std::move(event));
      return client->takes_more;
    };
    dispatcher.submit({client->id, "req", stream, n, prepare, sink, key});
    return client;
  }

  void say(FakeNode& node, const FakeNode::Asked& to, protocol::ProviderMessage message) {
    dispatcher.node_message(node.id, &node, to.job, to.attempt, std::move(message));
  }
  FakeNode::Asked lease(FakeNode& node, std::size_t i = 0, const std::string& digest = "d") {
    EXPECT_LT(i, node.asked.size());
    const FakeNode::Asked asked = node.asked.at(i);
    protocol::Lease message;
    message.prompt_tokens = 5;
    message.prompt_digest = digest;
    say(node, asked, message);
    return asked;
  }
  void refuse(FakeNode& node, std::size_t i, protocol::RefuseReason reason,
              Error error = {ErrorCode::kResourceExhausted, "no slot"},
              std::uint32_t retry_after_ms = 0) {
    protocol::Refuse message;
    message.reason = reason;
    message.error = protocol::to_wire(error);
    message.retry_after_ms = retry_after_ms;
    say(node, node.asked.at(i), message);
  }
  void tokens(FakeNode& node, const FakeNode::Asked& to, std::uint64_t first,
              const std::string& text,
              protocol::TextChannel channel = protocol::TextChannel::kContent) {
    protocol::Tokens message;
    message.first_index = first;
    message.ids = {static_cast<TokenId>(first)};
    if (!text.empty()) message.deltas.push_back({channel, text});
    say(node, to, std::move(message));
  }
  void finish(FakeNode& node, const FakeNode::Asked& to, std::uint64_t num_ids,
              protocol::WireFinishReason reason = protocol::WireFinishReason::kStop) {
    protocol::Finish message;
    message.reason = reason;
    message.num_ids = num_ids;
    message.usage = {5, static_cast<std::int64_t>(num_ids), 0, 0};
    say(node, to, message);
  }
  void fail(FakeNode& node, const FakeNode::Asked& to, Error error) {
    protocol::Finish message;
    message.error = protocol::to_wire(error);
    say(node, to, message);
  }
  void lose(FakeNode& node) { dispatcher.node_closed(node.id, &node, "gone"); }
  void beat(FakeNode& node, std::uint64_t sequence = 1) {
    protocol::Heartbeat message;
    message.sequence = sequence;
    say(node, {}, message);
  }
  void wait(std::chrono::milliseconds time) {
    clock.advance(time);
    dispatcher.tick();
  }
  // Nothing is left of any request.
  void expect_idle() {
    EXPECT_EQ(dispatcher.table().num_jobs(), 0u);
    EXPECT_EQ(dispatcher.table().num_requests(), 0u);
    EXPECT_EQ(dispatcher.table().num_cancelled(), 0u);
    EXPECT_EQ(dispatcher.num_queued(), 0u);
    for (ProviderRecord* provider : dispatcher.registry().providers()) {
      EXPECT_TRUE(provider->jobs.empty());
      for (const auto& [model, slot] : provider->slots)
        EXPECT_EQ(slot.num_attempts, 0u) << provider->node;
    }
  }

  FakeClock clock;
  Metrics metrics;
  DispatchLimits limits;
  int models_changed = 0;
  Dispatcher dispatcher{clock, metrics, limits, [this] { ++models_changed; }};
  std::uint64_t num_requests = 0;
};

}  // namespace flotilla::coordinator
