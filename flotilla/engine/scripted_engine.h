// An engine without a model: it answers by a script, on a timetable. For tests of everything above
// the engine, and for `--scripted FILE`. Format: docs/scripted-engine.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/engine/script.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// Has one thread with timers, idle when nothing is due. The destructor ends all requests with
// kUnavailable and joins the thread.
class ScriptedEngine final : public TextEngine {
 public:
  // `model` should be one of script.models.
  ScriptedEngine(std::shared_ptr<const Script> script, std::string model);
  ~ScriptedEngine() override;

  const EngineInfo& info() const override;
  Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob job) const override;
  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink) override;
  void cancel(RequestId request) override;
  void resume_output(RequestId request) override;
  EngineStats stats() const override;
  bool healthy() const override;
  std::string decode(std::span<const TokenId> ids) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One engine per model that the script names.
Result<std::vector<std::shared_ptr<TextEngine>>> load_scripted_engines(const std::string& path);
// From a script's text; for tests. Takes the first model.
Result<std::shared_ptr<TextEngine>> make_scripted_engine(std::string_view script_text);

}  // namespace flotilla::engine
