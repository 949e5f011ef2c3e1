#include "apps/flotilla/device.h"

#include <charconv>

#include "flotilla/backend/cuda/cuda_device.h"

namespace flotilla::apps {
namespace {

Result<Device> card(int number) {
  FLOTILLA_TRY(const auto info, backend::cuda::probe_cuda_device(number));
  return Device{.cuda = number, .name = info.name, .memory_bytes = info.memory_bytes};
}

}  // namespace

Result<Device> choose_device(const std::string& setting) {
  if (setting == "cpu") return Device{};
  if (setting == "auto") {
    auto found = card(0);
    return found.ok() ? std::move(found).value() : Device{};
  }
  if (setting == "cuda") return card(0);
  constexpr std::string_view kPrefix = "cuda:";
  int number = 0;
  if (setting.starts_with(kPrefix)) {
    const char* end = setting.data() + setting.size();
    const auto [rest, error] = std::from_chars(setting.data() + kPrefix.size(), end, number);
    if (error == std::errc() && rest == end && number >= 0) return card(number);
  }
  return Error{ErrorCode::kInvalidArgument,
               "device '" + setting + "' is none of auto, cpu, cuda, cuda:N"};
}

}  // namespace flotilla::apps
