// Follows answers token by token through their constraints and times every mask.
//
//   grammar_masks TOKENIZER.json < LINES
//
// A line is {"schema": ..., "answer": TEXT} or {"schema": ...}; without an answer one is drawn at
// random from the masks. Prints one line of JSON: counts and microseconds. Fails when a token of an
// answer may not come, or a finished answer is not accepted.
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "flotilla/grammar/compiler.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace {

using namespace flotilla;
using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Times {
  std::vector<double> values;
  boost::json::object summary() {
    boost::json::object out;
    if (values.empty()) return out;
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const double v : values) sum += v;
    const auto at = [this](double q) {
      return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
    };
    out["count"] = values.size();
    out["mean"] = sum / static_cast<double>(values.size());
    out["p50"] = at(0.5);
    out["p90"] = at(0.9);
    out["p99"] = at(0.99);
    out["p999"] = at(0.999);
    out["max"] = values.back();
    return out;
  }
};

struct Run {
  const tokenizer::Tokenizer& tokenizer;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  Times compile, mask, ready, accept;
  std::mt19937 random{1};
  int failures = 0;

  void fail(const std::string& what) {
    ++failures;
    std::fprintf(stderr, "%s\n", what.c_str());
  }

  void line(const boost::json::value& input) {
    grammar::Constraint constraint;
    constraint.kind = grammar::Constraint::Kind::kJsonSchema;
    constraint.schema = input.at("schema");
    constraint.param = "schema";
    auto start = Clock::now();
    auto compiled = grammar::compile(constraint, nullptr, std::nullopt, vocabulary);
    compile.values.push_back(micros_since(start));
    if (!compiled.ok()) return fail(compiled.error().message);

    grammar::Matcher matcher(*compiled);
    std::vector<std::uint32_t> words(vocabulary->num_words()), again(words.size());
    std::vector<TokenId> answer;
    const boost::json::value* text = json::find(input, "answer");
    if (text != nullptr) {
      auto ids = tokenizer.encode(std::string(text->as_string()), {.add_special_tokens = false});
      if (!ids.ok()) return fail(ids.error().message);
      answer = std::move(*ids);
    }
    const std::size_t most = text != nullptr ? answer.size() : 400;
    for (std::size_t i = 0; i < most; ++i) {
      // A random answer is closed in time, as the engine does it.
      const std::uint64_t budget = text != nullptr
                                       ? ~std::uint64_t{0}
                                       : std::max<std::uint64_t>(most - i, matcher.distance()) - 1;
      // What a worker has to do while the model computes, then what is left for the step when it
      // was late.
      start = Clock::now();
      const Status status = matcher.fill_mask(words, budget);
      mask.values.push_back(micros_since(start));
      if (!status.ok()) return fail(status.error().message);
      start = Clock::now();
      const auto quick = matcher.try_fill_mask(again, budget);
      if (!quick.ok()) return fail(quick.error().message);
      if (*quick) {
        ready.values.push_back(micros_since(start));
        if (again != words) return fail("a mask changed");
      }
      TokenId id = 0;
      if (text != nullptr) {
        id = answer[i];
      } else {
        if (matcher.is_finished()) break;
        std::vector<TokenId> legal;
        for (std::size_t t = 0; t < vocabulary->size(); ++t) {
          if ((words[t / 32] >> (t % 32) & 1u) != 0) legal.push_back(static_cast<TokenId>(t));
        }
        if (legal.empty() || (matcher.is_accepting() && random() % 4 == 0)) break;
        id = legal[random() % legal.size()];
      }
      const auto bit = static_cast<std::size_t>(id);
      if ((words[bit / 32] >> (bit % 32) & 1u) == 0) {
        return fail("token " + std::to_string(id) + " of an answer may not come at " +
                    std::to_string(i));
      }
      start = Clock::now();
      const bool fits = matcher.accept(id);
      accept.values.push_back(micros_since(start));
      if (!fits) return fail("token " + std::to_string(id) + " is in the mask but not accepted");
    }
    if (!matcher.is_accepting()) fail("an answer is not complete");
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_masks TOKENIZER.json < LINES\n");
    return 2;
  }
  const auto tokenizer = tokenizer::Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto start = Clock::now();
  const auto vocabulary = grammar::Vocabulary::from(**tokenizer);
  const double built = micros_since(start);
  Run run{.tokenizer = **tokenizer,
          .vocabulary = vocabulary,
          .compile = {},
          .mask = {},
          .ready = {},
          .accept = {}};
  std::string text;
  while (std::getline(std::cin, text)) {
    if (text.empty()) continue;
    auto input = json::parse(text, {.max_depth = 200});
    if (!input.ok()) {
      std::fprintf(stderr, "%s\n", input.error().message.c_str());
      return 1;
    }
    run.line(*input);
  }
  const boost::json::object out{{"vocabulary", vocabulary->size()},
                                {"vocabulary_build_us", built},
                                {"vocabulary_bytes", vocabulary->memory_bytes()},
                                {"compile_us", run.compile.summary()},
                                {"mask_us", run.mask.summary()},
                                {"ready_us", run.ready.summary()},
                                {"accept_us", run.accept.summary()},
                                {"failures", run.failures}};
  std::printf("%s\n", boost::json::serialize(out).c_str());
  return run.failures == 0 ? 0 : 1;
}
