#include "flotilla/serving/chat_session.h"

#include <algorithm>

#include "flotilla/api/limits.h"
#include "flotilla/base/check.h"
#include "flotilla/json/json.h"
#include "flotilla/log/log.h"
#include "flotilla/serving/event_batch.h"

#include <boost/json/value.hpp>

namespace flotilla::serving {
namespace {

constexpr std::size_t kMaxInbox =
    256;  // events that wait for the lane before the backend is asked to pause
constexpr std::string_view kTaken = "ok";
constexpr unsigned kClientClosed = 499;  // in the log only; nobody is there to read it

}  // namespace

ChatSession::ChatSession(const Context& context, Request request, std::unique_ptr<Lane> lane)
    : context_(context),
      request_(std::move(request)),
      lane_(std::move(lane)),
      started_(context.clock.now()),
      last_write_(started_) {}

ChatSession::~ChatSession() = default;

void ChatSession::start() {
  if (!context_.sessions.insert(shared_from_this())) {
    lane_->post([self = shared_from_this()] {
      self->fail({ErrorCode::kUnavailable, "the server is stopping"});
    });
    return;
  }
  // Weak: the exchange lives in the session.
  const std::weak_ptr<ChatSession> weak = weak_from_this();
  request_.exchange->set_callbacks(
      [weak] {
        if (auto self = weak.lock()) self->lane_->post([self] { self->client_left(); });
      },
      [weak] {
        if (auto self = weak.lock()) self->lane_->post([self] { self->on_drained(); });
      });
  lane_->post([self = shared_from_this()] { self->begin(); });
}

void ChatSession::stop(Error error) {
  lane_->post([self = shared_from_this(), error = std::move(error)] { self->fail(error); });
}

void ChatSession::begin() {
  if (done_) return;
  if (auto status = begin_work(); !status.ok()) fail(status.error());
}

Status ChatSession::begin_work() {
  const std::string& text = request_.exchange->request().body;
  FLOTILLA_TRY(const boost::json::value body,
               json::parse(text, {.max_bytes = context_.options.max_body_bytes,
                                  .max_depth = api::kMaxBodyDepth,
                                  .max_values = api::kMaxBodyValues}));
  FLOTILLA_TRY(ApiCall call, parse_api_call(request_.api, body, context_.clock.unix_seconds(),
                                            request_.caller.request_id));
  streaming_ = call.stream;
  answer_ = std::move(call.answer);
  choices_per_job_ = static_cast<std::size_t>(call.jobs.front().n);
  choices_.resize(call.jobs.size() * choices_per_job_);
  if (streaming_ && context_.options.keepalive_after.count() > 0)
    arm_timer(context_.options.keepalive_after);
  start_jobs(std::move(call.jobs));
  return ok_status();
}

void ChatSession::start_jobs(std::vector<api::ChatRequest> jobs) {
  int first_choice = 0;
  for (api::ChatRequest& job : jobs) {
    streams_.push_back(context_.backend.start(
        std::move(job), request_.caller, [weak = weak_from_this(), first_choice](ChatEvent event) {
          auto self = weak.lock();
          if (!self) return true;
          event.choice += first_choice;
          return self->on_event(std::move(event));
        }));
    FLOTILLA_CHECK(streams_.back() != nullptr, "ChatBackend::start returned no stream");
    first_choice += static_cast<int>(choices_per_job_);
  }
}

bool ChatSession::on_event(ChatEvent event) {
  bool must_post = false;
  bool room = true;
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(event));
    must_post = !std::exchange(drain_posted_, true);
    room = !reader_full_ && inbox_.size() < kMaxInbox;
    if (!room) paused_ = true;
  }
  if (must_post && !EventBatch::take(shared_from_this())) wake();
  return room;
}

void ChatSession::wake() {
  lane_->post([self = shared_from_this()] { self->drain(); });
}

void ChatSession::drain() {
  std::vector<ChatEvent> events;
  {
    std::lock_guard lock(mutex_);
    events.swap(inbox_);
    drain_posted_ = false;
  }
  std::string frames;  // one write for all events that had gathered
  for (ChatEvent& event : events) {
    if (done_) return;
    handle(event, frames);
  }
  if (done_) return;
  if (!frames.empty()) write(std::move(frames));
  after_writing();
}

void ChatSession::handle(ChatEvent& event, std::string& frames) {
  num_tokens_seen_ += static_cast<std::int64_t>(event.ids.size());
  const auto index = static_cast<std::size_t>(event.choice);
  const auto fail_after_frames = [&](const Error& error) {
    // What came before the failure is good and belongs to the client.
    if (!frames.empty()) write(std::move(frames));
    fail(error);
  };
  if (event.choice < 0 || index >= choices_.size() || choices_[index].finished) {
    fail_after_frames(
        {ErrorCode::kInternal, "the backend sent an event of a choice that is not running"});
    return;
  }
  if (event.finish) {
    choices_[index].usage = event.finish->usage;
    if (event.finish->error) {
      fail_after_frames(*event.finish->error);
      return;
    }
    if (event.finish->reason == ChatFinish::Reason::kError) {
      fail_after_frames({ErrorCode::kInternal, "the generation failed"});
      return;
    }
    if (event.finish->reason == ChatFinish::Reason::kCancelled) {
      fail_after_frames({ErrorCode::kCancelled, "the server cancelled the generation"});
      return;
    }
  }
  const Status status = answer_->add(event, frames);
  if (!status.ok()) {
    fail_after_frames(status.error());
    return;
  }
  if (event.finish) {
    choices_[index].finished = true;
    if (++num_finished_ == choices_.size()) complete(frames);
  }
}

void ChatSession::after_writing() {
  bool resume = false;
  {
    std::lock_guard lock(mutex_);
    resume = paused_ && !reader_full_;
    if (resume) paused_ = false;
  }
  if (!resume) return;
  for (const auto& stream : streams_) stream->resume();
}

void ChatSession::on_drained() {
  if (done_) return;
  {
    std::lock_guard lock(mutex_);
    reader_full_ = false;
  }
  after_writing();
}

void ChatSession::arm_timer(std::chrono::milliseconds delay) {
  lane_->after(delay, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->on_timer();
  });
}

void ChatSession::on_timer() {
  if (done_) return;
  const auto interval = context_.options.keepalive_interval;
  if (committed_) {
    const auto idle =
        std::chrono::duration_cast<std::chrono::milliseconds>(context_.clock.now() - last_write_);
    if (idle < interval) {
      arm_timer(interval - idle);
      return;
    }
  }
  bool reader_full = false;
  {
    std::lock_guard lock(mutex_);
    reader_full = reader_full_;
  }
  if (!reader_full) {
    write(std::string(answer_->keep_alive_frame()));
    if (done_) return;
  }
  if (interval.count() > 0) arm_timer(interval);
}

void ChatSession::commit() {
  if (std::exchange(committed_, true)) return;
  net::HttpResponse head{.status = 200, .headers = request_.base_headers, .body = {}};
  head.headers.add("Content-Type", "text/event-stream; charset=utf-8");
  head.headers.add("Cache-Control", "no-cache");
  head.headers.add("X-Accel-Buffering", "no");
  request_.exchange->begin_stream(std::move(head));
  if (context_.options.keepalive_interval.count() > 0)
    arm_timer(context_.options.keepalive_interval);
}

void ChatSession::write(std::string frames) {
  commit();
  last_write_ = context_.clock.now();
  const bool room = request_.exchange->write(std::move(frames));
  std::lock_guard lock(mutex_);
  reader_full_ = !room;  // on_drained() comes by way of the lane, so never before this
}

void ChatSession::complete(std::string& frames) {
  answer_->end(total_usage(), frames);
  if (streaming_) {
    write(std::move(frames));
    request_.exchange->end();
  } else {
    send(json_reply(200, std::move(frames)));
  }
  close(200, kTaken);
}

void ChatSession::send(net::HttpResponse response) {
  const auto& base = request_.base_headers.entries;
  response.headers.entries.insert(response.headers.entries.end(), base.begin(), base.end());
  request_.exchange->send(std::move(response));
}

void ChatSession::fail(const Error& error) {
  if (done_) return;
  if (error.code == ErrorCode::kInternal) {
    log::error("request_failed",
               {{"request", request_.caller.request_id}, {"reason", error.message}});
  }
  if (committed_) {
    std::string frames;
    answer_->append_error(error, frames);
    write(std::move(frames));
    request_.exchange->end();
    close(200, to_string(error.code));
    return;
  }
  net::HttpResponse response = error_reply(error, {request_.dialect, request_.caller.request_id});
  const unsigned status = response.status;
  send(std::move(response));
  close(status, to_string(error.code));
}

void ChatSession::client_left() {
  if (!done_) close(kClientClosed, "client_left");
}

void ChatSession::close(unsigned status, std::string_view outcome) {
  done_ = true;
  lane_->cancel_timer();
  const bool taken = num_finished_ == choices_.size() && outcome == kTaken;
  for (const auto& stream : streams_) taken ? stream->taken() : stream->cancel();
  streams_.clear();
  const api::Usage usage = total_usage();
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(context_.clock.now() - started_);
  log::info("request", {{"request", request_.caller.request_id},
                        {"route", route_name(request_.api)},
                        {"status", status},
                        {"outcome", outcome},
                        {"stream", streaming_},
                        {"prompt_tokens", usage.prompt_tokens},
                        {"completion_tokens", std::max(usage.completion_tokens, num_tokens_seen_)},
                        {"ms", elapsed.count()}});
  context_.sessions.erase(shared_from_this());
}

api::Usage ChatSession::total_usage() const {
  api::Usage total;
  for (std::size_t first = 0; first < choices_.size(); first += choices_per_job_) {
    std::int64_t prompt = 0;
    for (std::size_t i = first; i < first + choices_per_job_; ++i) {
      const api::Usage& usage = choices_[i].usage;
      prompt = std::max(prompt, usage.prompt_tokens);  // all choices of a job share one prompt
      total.completion_tokens += usage.completion_tokens;
      total.reasoning_tokens += usage.reasoning_tokens;
    }
    total.prompt_tokens += prompt;
    // What the first choice found in a cache; the others find the first one's prompt there.
    total.cached_tokens += choices_[first].usage.cached_tokens;
  }
  return total;
}

}  // namespace flotilla::serving
