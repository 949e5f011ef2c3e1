#include "bench/fleet/trace.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <unordered_map>

namespace flotilla::bench {
namespace {

constexpr const char* kColumns[] = {"time", "conversation", "prompt_tokens", "cached_prefix",
                                    "output_tokens"};

std::uint64_t conversation_of(const std::string& name) { return std::hash<std::string>()(name); }

Status parse_csv(const std::string& line, Arrival& out) {
  std::istringstream in(line);
  std::string cells[5];
  for (std::string& cell : cells)
    if (!std::getline(in, cell, ',')) return Error{ErrorCode::kInvalidArgument, "five columns"};
  try {
    out.at = std::stod(cells[0]);
    out.conversation = conversation_of(cells[1]);
    out.prompt_tokens = std::stoll(cells[2]);
    out.cached_prefix = std::stoll(cells[3]);
    out.output_tokens = std::stoll(cells[4]);
  } catch (const std::exception&) {
    return Error{ErrorCode::kInvalidArgument, "a number"};
  }
  return ok_status();
}

Status parse_json(const std::string& line, Arrival& out) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(line, error);
  const boost::json::object* object = value.if_object();
  if (error || object == nullptr) return Error{ErrorCode::kInvalidArgument, "a JSON object"};
  double numbers[5] = {};
  for (std::size_t i = 0; i < 5; ++i) {
    const boost::json::value* field = object->if_contains(kColumns[i]);
    if (field == nullptr)
      return Error{ErrorCode::kInvalidArgument, "\"" + std::string(kColumns[i]) + "\""};
    if (i == 1 && field->is_string()) {
      out.conversation = conversation_of(std::string(field->get_string()));
      continue;
    }
    if (!field->is_number())
      return Error{ErrorCode::kInvalidArgument, "a number as " + std::string(kColumns[i])};
    numbers[i] = field->to_number<double>();
    if (i == 1) out.conversation = conversation_of(std::to_string(field->to_number<double>()));
  }
  out.at = numbers[0];
  out.prompt_tokens = static_cast<std::int64_t>(numbers[2]);
  out.cached_prefix = static_cast<std::int64_t>(numbers[3]);
  out.output_tokens = static_cast<std::int64_t>(numbers[4]);
  return ok_status();
}

void order(std::vector<Arrival>& trace) {
  std::stable_sort(trace.begin(), trace.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  std::unordered_map<std::uint64_t, std::size_t> turns;
  for (Arrival& arrival : trace) arrival.turn = turns[arrival.conversation]++;
}

}  // namespace

Result<std::vector<Arrival>> read_trace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::kNotFound, "cannot read the trace " + path};
  std::vector<Arrival> out;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.starts_with("time")) continue;
    Arrival arrival;
    const Status parsed =
        line.front() == '{' ? parse_json(line, arrival) : parse_csv(line, arrival);
    const bool sane = arrival.at >= 0 && arrival.prompt_tokens > 0 && arrival.cached_prefix >= 0 &&
                      arrival.cached_prefix <= arrival.prompt_tokens && arrival.output_tokens > 0;
    if (!parsed.ok() || !sane) {
      return Error{ErrorCode::kInvalidArgument,
                   path + ":" + std::to_string(number) + ": expected " +
                       (parsed.ok() ? "counts above zero and a prefix within the prompt"
                                    : parsed.error().message)};
    }
    out.push_back(arrival);
  }
  if (out.empty()) return Error{ErrorCode::kInvalidArgument, path + " has no arrivals"};
  order(out);
  return out;
}

std::vector<Arrival> make_trace(const MadeTrace& made) {
  std::mt19937_64 random(made.seed);
  std::exponential_distribution<double> begins(made.conversations_per_s), thinks(1 / made.think_s);
  std::geometric_distribution<int> more_turns(1 / std::max(1.0, made.turns));
  std::lognormal_distribution<double> size(-0.125, 0.5);  // mean 1
  const auto about = [&](std::int64_t mean) {
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(mean) * size(random)));
  };
  std::vector<Arrival> out;
  std::uint64_t conversation = 0;
  for (double begin = begins(random); begin < made.seconds; begin += begins(random)) {
    ++conversation;
    std::int64_t prompt = about(made.first_prompt), cached = 0;
    double at = begin;
    for (int left = more_turns(random); left >= 0 && at < made.seconds; --left) {
      const std::int64_t answer = about(made.output);
      out.push_back({at, conversation, prompt, cached, answer, 0});
      cached = prompt;
      prompt += answer + about(made.more_prompt);
      at += 5 + thinks(random);
    }
  }
  order(out);
  return out;
}

}  // namespace flotilla::bench
