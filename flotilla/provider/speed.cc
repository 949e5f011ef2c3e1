#include "flotilla/provider/speed.h"

namespace flotilla::provider {

namespace {
// Recent work counts most, a single hiccup little.
constexpr double kDecodeWeight = 0.02;
constexpr double kJobWeight = 0.2;

void blend(double& average, double value, double weight) {
  average = average == 0 ? value : average + weight * (value - average);
}
double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}
}  // namespace

void Speed::add_decode(std::int64_t num_tokens, std::chrono::nanoseconds took) {
  if (num_tokens > 0 && took.count() > 0)
    blend(decode_, static_cast<double>(num_tokens) / seconds(took), kDecodeWeight);
}

void Speed::add_prefill(std::int64_t num_tokens, std::chrono::nanoseconds took) {
  if (num_tokens > 0 && took.count() > 0)
    blend(prefill_, static_cast<double>(num_tokens) / seconds(took), kJobWeight);
}

void Speed::add_job(std::chrono::nanoseconds took) { blend(job_, seconds(took), kJobWeight); }

}  // namespace flotilla::provider
