// Which numbers a backend computes: the id by which machines find out that they agree, and a search
// for drift.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {

// Rises when a change of kernels changes bits on purpose.
inline constexpr int kKernelAbiVersion = 1;
// How reductions are cut into pieces; rises likewise.
inline constexpr int kPartitionVersion = 1;

// SHA-256, 64 hexadecimal digits, over both versions and the outputs of every operation on fixed
// inputs. Equal for all CPU targets and thread counts. Takes some ten milliseconds. Called like the
// operations: one caller at a time.
std::string numerics_id(Backend& backend);

struct StressReport {
  int rounds = 0;
  std::int64_t outputs = 0;  // numbers compared
  // Operations whose bits changed from one round to another,
  std::vector<std::string> drifting = {};
  // and those whose rows change with the rows beside them.
  std::vector<std::string> row_dependent = {};
  bool ok() const { return drifting.empty() && row_dependent.empty(); }
};
// Repeats every operation on fixed inputs and compares bits with the first time; then compares rows
// alone with the same rows among others.
StressReport op_stress(Backend& backend, int rounds);

// The id of a backend whose kernels do not drift within `rounds`; else kModelFault names the device
// and the operation. kUnavailable when the device fails.
Result<std::string> check_numerics(Backend& backend, int rounds);

// What a node checks before it serves: the scalar definition, and the target of `options` with one
// thread and with all of them, give one id, and none of them drifts within `rounds`. That id;
// kModelFault names the device and the operation.
Result<std::string> check_numerics(const CpuOptions& options, int rounds);

}  // namespace flotilla::backend
