// The tables of docs/admission.md against the code.
#include <gtest/gtest.h>

#include <cstdio>

#include "flotilla/base/file.h"
#include "flotilla/gates/test_models.h"

namespace flotilla::gates {
namespace {

constexpr std::uint64_t kMachines[] = {24, 32, 36, 48, 64, 96, 128};

std::string gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / static_cast<double>(kGiB));
  return text;
}

std::string slack(const ModelFacts& model, const NodeFacts& node) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2f",
                (static_cast<double>(*node.free_for_load) -
                 static_cast<double>(need_to_load(model.size, model.state, 0))) /
                    static_cast<double>(kGiB));
  return text;
}

std::string machine(const ModelFacts& model, const NodeFacts& node) {
  return hardware_gate(node, {}, model).admitted() ? "fits" : "too large";
}

std::string tokens(const ModelFacts& model, const NodeFacts& node) {
  return std::to_string(cold_tokens(model.size, model.state, node.memory_bytes));
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out;
}

std::string page() { return *read_file(FLOTILLA_SOURCE_DIR "/docs/admission.md", 1 << 20); }

TEST(AdmissionTables, TheResidentModelIsAsThePageSays) {
  const std::string text = page();
  const ModelFacts listed = flagship(), read = flagship(true);
  ModelFacts unruled = listed;
  unruled.size.min_memory_bytes = 0;
  for (const std::uint64_t memory : kMachines) {
    const NodeFacts node = idle_node(memory);
    const std::string line = row(
        {std::to_string(memory), gib(node.usable_bytes), machine(listed, node), slack(listed, node),
         slack(read, node), smallest_machine(unruled.size) <= node.memory_bytes ? "yes" : "no",
         tokens(listed, node), tokens(read, node)});
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line;
  }
}

TEST(AdmissionTables, TheStreamedModelIsAsThePageSays) {
  const std::string text = page();
  for (const std::uint64_t memory : kMachines) {
    const NodeFacts node = idle_node(memory);
    const ModelFacts whole = streamed(141), listed = streamed(16);
    const std::string line =
        row({std::to_string(memory), gib(node.usable_bytes), machine(listed, node),
             slack(whole, node), tokens(whole, node), slack(listed, node), tokens(listed, node)});
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line;
  }
}

TEST(AdmissionTables, EveryReasonIsOnThePage) {
  const std::string text = page();
  for (std::size_t i = 1; i < kNumReasons; ++i) {
    const std::string name = "`" + std::string(to_string(static_cast<Reason>(i))) + "`";
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace flotilla::gates
