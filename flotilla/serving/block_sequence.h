// Cuts the events of one choice into blocks that follow each other, one open at a time.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/answer_block.h"
#include "flotilla/serving/call_filter.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::serving {

class BlockSequence {
 public:
  // Called when something happens to the block of this index. `text` is what was appended.
  class Listener {
   public:
    virtual ~Listener() = default;
    // May give the block an id.
    virtual void on_open(std::size_t index, api::AnswerBlock& block) = 0;
    virtual void on_text(std::size_t index, const api::AnswerBlock& block, std::string_view text,
                         std::span<const api::TokenLogprob> logprobs) = 0;
    virtual void on_close(std::size_t index, const api::AnswerBlock& block) = 0;
  };

  // `listener` must outlive it. Logprobs are kept with the text that their tokens made; those of
  // thoughts and calls are let go.
  BlockSequence(Listener& listener, bool parallel_calls, bool keeps_logprobs);

  // An error means that the backend broke its contract.
  Status add(ChatEvent& event);

  const std::vector<api::AnswerBlock>& blocks() const { return blocks_; }
  bool has_calls() const { return calls_.num_calls() > 0 && calls_.last_is_whole(); }
  // Of the finish that add() has seen.
  bool was_cut() const { return was_cut_; }
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  Status add_delta(ChatDelta& delta);
  void open(api::AnswerBlock block);
  void append(std::string_view text);
  void close(bool complete);

  Listener& listener_;
  CallFilter calls_;
  const bool keeps_logprobs_;
  std::vector<api::AnswerBlock> blocks_;
  bool is_open_ = false;                    // the last block
  std::vector<api::TokenLogprob> pending_;  // of tokens whose text has not come yet
  bool was_cut_ = false;
  std::string matched_stop_;
};

}  // namespace flotilla::serving
