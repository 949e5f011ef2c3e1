// flotilla-make-checkpoint FOLDER: a random-weight checkpoint of Gemma 4 shape, for benches and
// load tests.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "writer.h"

int main(int argc, char** argv) {
  using flotilla::make_checkpoint::ModelShape;
  flotilla::make_checkpoint::WriteOptions options;
  options.tokenizer_from = FLOTILLA_SOURCE_DIR "/models/flotilla-tiny";
  std::string preset_name = "tiny";
  ModelShape given;
  CLI::App app(
      "Writes a checkpoint of Gemma 4 shape with random weights. It answers nonsense, at the speed "
      "of a real one.");
  app.add_option("folder", options.folder, "Where to write; created")->required();
  app.add_option("--preset", preset_name, "Sizes to start from: tiny, 1b, 4b, 31b")
      ->capture_default_str();
  app.add_option("--tokenizer-from", options.tokenizer_from,
                 "Model folder whose tokenizer is copied");
  app.add_option("--shard-bytes", options.shard_bytes, "Largest weight file")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Same seed, same bytes")->capture_default_str();
  struct Size {
    const char* flag;
    std::int64_t ModelShape::*member;
  };
  constexpr Size kSizes[] = {{"--hidden", &ModelShape::hidden},
                             {"--layers", &ModelShape::layers},
                             {"--heads", &ModelShape::heads},
                             {"--kv-heads", &ModelShape::kv_heads},
                             {"--global-kv-heads", &ModelShape::global_kv_heads},
                             {"--head-dim", &ModelShape::head_dim},
                             {"--global-head-dim", &ModelShape::global_head_dim},
                             {"--mlp", &ModelShape::mlp},
                             {"--vocab", &ModelShape::vocab},
                             {"--context", &ModelShape::context},
                             {"--window", &ModelShape::window},
                             {"--period", &ModelShape::period}};
  for (const Size& size : kSizes) {
    app.add_option(size.flag, given.*size.member, "Replaces the preset's value")
        ->check(CLI::Range(1, 1 << 24));
  }
  app.add_option("--bits", given.bits, "Affine coding")->check(CLI::IsMember({2, 3, 4, 5, 6, 8}));
  app.add_option("--group", given.group, "Elements per scale")->check(CLI::IsMember({32, 64, 128}));
  CLI11_PARSE(app, argc, argv);

  auto shape = flotilla::make_checkpoint::preset(preset_name);
  if (!shape) {
    std::fprintf(stderr, "unknown preset '%s' (tiny, 1b, 4b, 31b)\n", preset_name.c_str());
    return 1;
  }
  for (const Size& size : kSizes) {
    if (app.count(size.flag) > 0) (*shape).*size.member = given.*size.member;
  }
  if (app.count("--bits") > 0) shape->bits = given.bits;
  if (app.count("--group") > 0) shape->group = given.group;
  const auto written = flotilla::make_checkpoint::write_checkpoint(*shape, options);
  if (!written.ok()) {
    std::fprintf(stderr, "%s\n", written.error().message.c_str());
    return 1;
  }
  std::printf("%s: %lld parameters, %llu bytes in %zu files\n", options.folder.c_str(),
              static_cast<long long>(written->num_parameters),
              static_cast<unsigned long long>(written->num_bytes), written->num_files);
  return 0;
}
