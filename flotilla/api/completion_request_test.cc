#include "flotilla/api/completion_request.h"

#include "flotilla/api/limits.h"
#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

Result<CompletionRequest> parse(const std::string& members) {
  return parse_completion_request(parse_text(R"({"model":"m",)" + members + "}"));
}

TEST(CompletionRequest, APromptIsOneTextOrSeveralOrTokenIds) {
  auto request = parse(R"("prompt":"a b")");
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request->jobs.size(), 1u);
  EXPECT_TRUE(request->jobs[0].is_completion);
  EXPECT_EQ(request->jobs[0].prompt, "a b");
  request = parse(R"("prompt":["a","b"])");
  ASSERT_EQ(request->jobs.size(), 2u);
  EXPECT_EQ(request->jobs[1].prompt, "b");
  request = parse(R"("prompt":[7,8])");
  ASSERT_EQ(request->jobs.size(), 1u);
  EXPECT_EQ(request->jobs[0].prompt_ids, (std::vector<TokenId>{7, 8}));
  request = parse(R"("prompt":[[7],[8,9]])");
  ASSERT_EQ(request->jobs.size(), 2u);
  EXPECT_EQ(request->jobs[1].prompt_ids, (std::vector<TokenId>{8, 9}));
}

TEST(CompletionRequest, EveryPromptHasTheSameSettings) {
  const auto request = parse(R"("prompt":["a","b"],"n":2,"seed":5,"temperature":0.5,"stop":"x")");
  ASSERT_TRUE(request.ok());
  for (const ChatRequest& job : request->jobs) {
    EXPECT_EQ(job.n, 2);
    EXPECT_EQ(job.seed, 5u);
    EXPECT_EQ(job.temperature, 0.5);
    EXPECT_EQ(job.stop, (std::vector<std::string>{"x"}));
    EXPECT_EQ(job.max_tokens, 16);  // OpenAI's default
    EXPECT_TRUE(job.is_completion);
  }
}

TEST(CompletionRequest, NoTokensMeansToCount) {
  const auto request = parse(R"("prompt":"a","max_tokens":0,"echo":true)");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->jobs[0].count_only);
  EXPECT_FALSE(request->jobs[0].max_tokens.has_value());
  EXPECT_TRUE(request->echo);
}

TEST(CompletionRequest, TheBestOfSeveralAreComparedByLogprobs) {
  const auto request = parse(R"("prompt":"a","n":2,"best_of":4)");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(request->jobs[0].n, 4);
  EXPECT_FALSE(request->logprobs);
  EXPECT_TRUE(request->jobs[0].logprobs);
}

TEST(CompletionRequest, TravelsAsAJob) {
  for (const char* prompt : {R"("prompt":"a\u0000b")", R"("prompt":[1,2])", R"("prompt":"")"}) {
    auto request = parse(prompt);
    ASSERT_TRUE(request.ok());
    const auto back =
        from_job_json(parse_text(boost::json::serialize(to_job_json(request->jobs[0]))));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->prompt, request->jobs[0].prompt);
    EXPECT_EQ(back->prompt_ids, request->jobs[0].prompt_ids);
    EXPECT_TRUE(back->is_completion);
  }
}

struct Refusal {
  const char *members, *param;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

TEST(CompletionRequest, RefusesByName) {
  for (const Refusal& r :
       {Refusal{R"("n":1)", "prompt"}, Refusal{R"("prompt":7)", "prompt"},
        Refusal{R"("prompt":{})", "prompt"}, Refusal{R"("prompt":[])", "prompt"},
        Refusal{R"("prompt":["a",1])", "prompt[1]"}, Refusal{R"("prompt":[1,"a"])", "prompt"},
        Refusal{R"("prompt":[[]])", "prompt[0]"}, Refusal{R"("prompt":[-1])", "prompt"},
        Refusal{R"("prompt":[1.5])", "prompt"},
        Refusal{R"("prompt":"a","max_tokens":-1)", "max_tokens"},
        Refusal{R"("prompt":"a","logprobs":21)", "logprobs"},
        Refusal{R"("prompt":"a","logprobs":true)", "logprobs"},
        Refusal{R"("prompt":"a","n":3,"best_of":2)", "best_of"},
        Refusal{R"("prompt":"a","best_of":2,"stream":true)", "best_of"},
        Refusal{R"("prompt":"a","suffix":"b")", "suffix", ErrorCode::kUnsupported},
        Refusal{R"("prompt":"a","echo":true,"logprobs":1)", "echo", ErrorCode::kUnsupported},
        Refusal{R"("prompt":[1],"echo":true)", "echo", ErrorCode::kUnsupported},
        Refusal{R"("prompt":"a","stream_options":{"include_usage":true})", "stream_options"}}) {
    const auto request = parse(r.members);
    ASSERT_FALSE(request.ok()) << r.members;
    EXPECT_EQ(request.error().param, r.param) << r.members;
    EXPECT_EQ(request.error().code, r.code) << r.members;
  }
  std::string many = R"("prompt":["p")";
  for (std::size_t i = 1; i < kMaxPrompts; ++i) many += R"(,"p")";
  EXPECT_TRUE(parse(many + R"(],"n":2)").ok());
  EXPECT_EQ(parse(many + R"(],"n":3)").error().param, "n");
  EXPECT_EQ(parse(many + R"(,"p"])").error().param, "prompt");
}

}  // namespace
}  // namespace flotilla::api
