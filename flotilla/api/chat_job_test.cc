#include <cmath>
#include <limits>
#include <random>

#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

// Through text, as it travels.
Result<ChatRequest> travel(const ChatRequest& request) {
  return from_job_json(parse_text(boost::json::serialize(to_job_json(request))));
}

ChatRequest full_request() {
  ChatRequest r;
  r.model = "org/model";
  r.messages = parse_text(
      R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"ü"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":{"k":[1,0.5,null]}}}]}])");
  r.tools = parse_text(R"([{"type":"function","function":{"name":"n"}}])");
  r.tool_choice = "function";
  r.tool_choice_function = "n";
  r.parallel_tool_calls = false;
  r.template_variables = parse_text(R"({"enable_thinking":true})").get_object();
  r.stream = r.include_usage = r.ignore_eos = r.include_stop_string = r.logprobs =
      r.return_token_ids = true;
  r.add_generation_prompt = false;
  r.continue_final_message = r.count_only = true;
  r.n = 3;
  r.max_tokens = 77;
  r.min_tokens = 2;
  r.temperature = 1.1123577982447599;  // the JSON library would read this one wrong by a bit
  r.top_p = 0.1;
  r.min_p = 0.05;
  r.top_k = 40;
  r.presence_penalty = -0.3;
  r.frequency_penalty = 1.4573924968733005;
  r.repetition_penalty = 1.1;
  r.logit_bias = {{3, -100}, {9, 0.1}};
  r.seed = std::numeric_limits<std::uint64_t>::max();
  r.stop = {"END", "\n\n"};
  r.stop_token_ids = {1, 106};
  r.top_logprobs = 20;
  r.strict_tools = {"n"};
  r.output_format = parse_text(
      R"({"kind":"json_schema","value":{"type":"object","minProperties":1},"param":"guided_json"})");
  r.sampling_seed = 0x8000000000000001u;
  r.render_time = 1'790'000'000;
  return r;
}

TEST(ChatJob, ArrivesEqual) {
  const ChatRequest full = full_request();
  const auto back = travel(full);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, full);
  const auto small = parse_with("");
  EXPECT_EQ(*travel(*small), *small);
}

TEST(ChatJob, KeepsEveryBitOfSamplingNumbers) {
  std::mt19937_64 random(1);
  ChatRequest r = full_request();
  for (int i = 0; i < 2000; ++i) {
    r.temperature = std::ldexp(static_cast<double>(random() >> 11), -52);
    r.sampling_seed = random();
    const auto back = travel(r);
    ASSERT_TRUE(back.ok());
    ASSERT_EQ(*back, r);
  }
}

TEST(ChatJob, IsTheSameTextForEqualRequests) {
  EXPECT_EQ(boost::json::serialize(to_job_json(full_request())),
            boost::json::serialize(to_job_json(full_request())));
  const auto back = travel(full_request());
  EXPECT_EQ(boost::json::serialize(to_job_json(*back)),
            boost::json::serialize(to_job_json(full_request())));
}

TEST(ChatJob, ADamagedJobIsAnErrorForEveryField) {
  const boost::json::object good = to_job_json(full_request()).get_object();
  for (const auto& member : good) {
    boost::json::object bad = good;
    bad[member.key()] = boost::json::parse(R"({"x":[true]})");
    const bool free_form = member.key() == "template_variables";
    EXPECT_EQ(from_job_json(bad).ok(), free_form) << member.key();
  }
  EXPECT_FALSE(from_job_json(boost::json::value(nullptr)).ok());
  EXPECT_FALSE(from_job_json(boost::json::object()).ok());
}

TEST(ChatJob, RefusesNumbersThatWouldReachTheSampler) {
  boost::json::object job = to_job_json(full_request()).get_object();
  for (const char* bad : {"nan", "inf", "-1", "3", "", "0.5x"}) {
    job["temperature"] = bad;
    EXPECT_FALSE(from_job_json(job).ok()) << bad;
  }
}

}  // namespace
}  // namespace flotilla::api
