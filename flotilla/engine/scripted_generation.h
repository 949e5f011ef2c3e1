// One running answer of a ScriptedEngine. Owned by its thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "flotilla/engine/output_pipeline.h"
#include "flotilla/engine/script.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

class ScriptedGeneration {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // `rule` must outlive the generation.
  ScriptedGeneration(RequestId id, std::shared_ptr<const PreparedJob> job, EventSink sink,
                     const Script& script, const ScriptRule& rule);

  // Starts the clock of the first step. Replays resume_ids.
  void start(Instant now);
  // When the next step is due; nullopt: never (hanging, or not running).
  std::optional<Instant> due() const;
  // Does the step that is due.
  void step(Instant now);
  // Hands over what is there. False when the sink wants a pause or has failed.
  void emit();
  void finish(FinishReason reason, std::optional<Error> error = std::nullopt);
  void resume(Instant now);

  bool finished() const { return pipeline_.finished(); }
  bool started() const { return started_; }
  RequestId id() const { return id_; }
  const Usage& usage() const { return pipeline_.usage(); }

 private:
  class Decoder;
  const ScriptStep* next_step();
  void generate(const ScriptStep& step, std::string bytes);
  void replay();
  std::string echo_text(const ScriptStep& step) const;
  TokenLogprob logprob_of(const ScriptStep& step, TokenId id, const std::string& bytes) const;
  void schedule_next(Instant from);

  const RequestId id_;
  const std::shared_ptr<const PreparedJob> job_;
  EventSink sink_;
  const ScriptRule& rule_;
  const std::int64_t max_tokens_;  // of this answer, the context's end included
  Decoder* decoder_;               // owned by pipeline_
  OutputPipeline pipeline_;
  std::size_t position_ = 0;  // in rule_.steps
  bool started_ = false;
  bool paused_ = false;
  bool hanging_ = false;
  Instant due_{};
};

}  // namespace flotilla::engine
