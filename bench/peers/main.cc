// llama.cpp beside flotilla, interleaved in one process. See README.md.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/peers/linears.h"
#include "bench/peers/shared_library.h"

namespace peers = flotilla::peers;

int main(int argc, char** argv) {
  CLI::App app("Measures llama.cpp and flotilla interleaved. Needs a quiet machine.");
  app.require_subcommand(1);
  peers::LinearOptions linears;
  std::vector<std::string> shapes = {"llama-1b", "gemma-4b"};
  std::string mode = "avx2";
  auto* linears_command = app.add_subcommand("linears", "All linears of a shape, products only");
  linears_command->add_option("--peer", linears.peer_folder, "Folder of the peer's libraries")
      ->required();
  linears_command->add_option("--shapes", shapes, "llama-1b, gemma-1b, gemma-4b")->delimiter(',');
  linears_command->add_option("--mode", mode, "avx2: both sides limited to AVX2; best: neither")
      ->check(CLI::IsMember({"avx2", "best"}));
  linears_command->add_option("--rows", linears.rows, "Rows of x")->delimiter(',');
  linears_command->add_option("--rounds", linears.rounds, "Rounds; half from 64 rows on");
  linears_command->add_option("--seconds", linears.min_seconds, "Least length of a sample");
  linears_command->add_option("--threads", linears.threads, "Of either side");
  linears_command->add_flag("--pin", linears.pin, "Our workers on cores of their own");
  std::string clock = "wall";
  linears_command->add_option("--clock", clock, "cpu: processor time over threads")
      ->check(CLI::IsMember({"wall", "cpu"}));
  CLI11_PARSE(app, argc, argv);

  linears.clock = clock == "cpu" ? peers::Clock::kCpu : peers::Clock::kWall;
  linears.best = mode == "best";
  for (const std::string& name : shapes) {
    const auto shape = peers::find_shape(name);
    if (!shape) peers::fail("unknown shape '" + name + "' (llama-1b, gemma-1b, gemma-4b)");
    peers::bench_linears(*shape, linears);
  }
  return 0;
}
