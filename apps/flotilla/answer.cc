#include "apps/flotilla/answer.h"

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "apps/flotilla/console.h"
#include "flotilla/api/chat_request.h"
#include "flotilla/base/bounded_queue.h"
#include "flotilla/base/clock.h"
#include "flotilla/provider/chat_job.h"

namespace flotilla::apps {
namespace bj = boost::json;
namespace {

constexpr std::size_t kQueuedEvents = 4096;
constexpr auto kPoll =
    std::chrono::milliseconds(50);  // how soon Ctrl-C is noticed while nothing arrives

// The body that a client would post, so that the terminal and the HTTP surface mean the same by it.
bj::object request_body(const bj::array& messages, const bj::value& tools,
                        const AnswerOptions& options) {
  bj::object body{{"model", "local"}, {"messages", messages}};
  if (!options.text.empty()) {
    body["messages"] = bj::array{bj::object{{"role", "user"}, {"content", options.text}}};
  }
  if (tools.is_array() && !tools.get_array().empty()) body["tools"] = tools;
  if (options.thinking) body["chat_template_kwargs"] = bj::object{{"enable_thinking", true}};
  if (options.max_tokens > 0) body["max_tokens"] = options.max_tokens;
  if (options.temperature) {
    body["temperature"] = *options.temperature;
  } else if (options.raw) {
    body["temperature"] = 0;
  }
  if (options.top_p) body["top_p"] = *options.top_p;
  if (options.top_k) body["top_k"] = *options.top_k;
  return body;
}

// Prints pieces as they come and keeps them for the history. Reasoning is dimmed on a terminal.
class Printer {
 public:
  explicit Printer(bool raw) : raw_(raw), terminal_(is_terminal(stdout)) {}

  void print(const engine::TextEngine& engine, const engine::TokenEvent& event) {
    ids_.insert(ids_.end(), event.ids.begin(), event.ids.end());
    for (const chat::OutputDelta& delta : event.deltas) {
      collect(delta);
      if (!raw_) show(delta);
    }
    if (raw_ && event.finish) {
      const std::string text = engine.decode(ids_);
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    flush();
  }
  // The reason why standard output takes nothing any more (a full disk, a closed pipe).
  const std::optional<std::string>& broken() const { return broken_; }

  void end() {
    if (dimmed_) std::fputs("\033[0m", stdout);
    if (!raw_ || terminal_) std::fputc('\n', stdout);
    flush();
  }

  bj::object message() const {
    bj::object out{{"role", "assistant"}};
    out["content"] = content_.empty() && !calls_.empty() ? bj::value(nullptr) : bj::value(content_);
    if (!reasoning_.empty()) out["reasoning_content"] = reasoning_;
    if (!calls_.empty()) {
      bj::array calls;
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        calls.push_back(
            bj::object{{"id", "call_" + std::to_string(i)},
                       {"type", "function"},
                       {"function", {{"name", calls_[i].first}, {"arguments", calls_[i].second}}}});
      }
      out["tool_calls"] = std::move(calls);
    }
    return out;
  }

 private:
  void flush() {
    if (std::fflush(stdout) != 0 && !broken_) broken_ = std::strerror(errno);
  }

  void collect(const chat::OutputDelta& delta) {
    switch (delta.channel) {
      case chat::Channel::kContent:
        content_ += delta.text;
        break;
      case chat::Channel::kReasoning:
        reasoning_ += delta.text;
        break;
      case chat::Channel::kToolCall:
        if (!delta.call_name.empty()) calls_.emplace_back(delta.call_name, "");
        if (!calls_.empty()) calls_.back().second += delta.text;
        break;
    }
  }

  void show(const chat::OutputDelta& delta) {
    const bool dim = delta.channel == chat::Channel::kReasoning;
    if (terminal_ && dim != dimmed_) std::fputs(dim ? "\033[2m" : "\033[0m\n", stdout);
    if (!terminal_ && dimmed_ && !dim) std::fputc('\n', stdout);
    dimmed_ = dim;
    const auto shown = [this](const std::string& text) {
      return terminal_ ? printable(text) : text;
    };
    if (!delta.call_name.empty())
      std::fprintf(stdout, "\n[calls %s] ", shown(delta.call_name).c_str());
    const std::string text = shown(delta.text);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }

  const bool raw_, terminal_;
  bool dimmed_ = false;
  std::optional<std::string> broken_;
  std::vector<TokenId> ids_;
  std::string content_, reasoning_;
  std::vector<std::pair<std::string, std::string>> calls_;
};

}  // namespace

Result<Answer> stream_answer(engine::TextEngine& engine, const bj::array& messages,
                             const bj::value& tools, const AnswerOptions& options,
                             const std::atomic<bool>& interrupted) {
  FLOTILLA_TRY(api::ChatRequest request,
               api::parse_chat_request(request_body(messages, tools, options)));
  request.seed = options.seed;
  provider::fix_at_admission(request, SystemClock().unix_seconds());
  FLOTILLA_TRY(engine::ChatJob job, provider::to_chat_job(request, engine.info(), 0, "local"));
  job.raw_prompt = options.text;
  FLOTILLA_TRY(auto prepared, engine.prepare(std::move(job)));

  using Time = std::chrono::steady_clock;
  // Shared with the sink, which may still be inside a call when the finish event has been taken
  // here.
  struct Channel {
    BoundedQueue<engine::TokenEvent> events{kQueuedEvents};
    std::atomic<bool> paused{false};
  };
  const auto channel = std::make_shared<Channel>();
  const auto begin = Time::now();
  // A paused sequence produces nothing, so the upper half of the queue is never needed and no event
  // is lost.
  FLOTILLA_TRY(const RequestId id,
               engine.submit(std::move(prepared), [channel](engine::TokenEvent event) {
                 channel->events.try_push(std::move(event));
                 if (channel->events.size() < kQueuedEvents / 2) return true;
                 channel->paused.store(true);
                 return false;
               }));

  Answer answer;
  Printer printer(options.raw);
  std::optional<Time::time_point> first, last;
  bool cancelled = false;
  for (;;) {
    if ((interrupted.load() || printer.broken()) && !cancelled) {
      cancelled = true;
      engine.cancel(id);
    }
    auto event = channel->events.pop_for(kPoll);
    if (!event) continue;
    if (channel->events.size() == 0 && channel->paused.exchange(false)) engine.resume_output(id);
    if (!event->ids.empty()) {
      last = Time::now();
      if (!first) first = last;
    }
    printer.print(engine, *event);
    if (event->finish) {
      answer.finish = std::move(*event->finish);
      break;
    }
  }
  printer.end();
  answer.message = printer.message();
  if (first) {
    answer.seconds_to_first_token = std::chrono::duration<double>(*first - begin).count();
    answer.decode_seconds = std::chrono::duration<double>(*last - *first).count();
  }
  if (printer.broken()) {
    return Error{ErrorCode::kUnavailable, "cannot write the answer: " + *printer.broken()};
  }
  if (answer.finish.error) return *answer.finish.error;
  return answer;
}

std::string speed_line(const Answer& answer) {
  char text[160];
  const auto tokens = answer.finish.usage.completion_tokens;
  const double rate =
      answer.decode_seconds > 0 ? static_cast<double>(tokens - 1) / answer.decode_seconds : 0;
  std::snprintf(text, sizeof text, "%lld tokens, %.1f tokens/s, first after %.2f s%s",
                static_cast<long long>(tokens), rate, answer.seconds_to_first_token,
                answer.finish.reason == engine::FinishReason::kLength      ? ", cut at the limit"
                : answer.finish.reason == engine::FinishReason::kCancelled ? ", stopped"
                                                                           : "");
  return text;
}

}  // namespace flotilla::apps
