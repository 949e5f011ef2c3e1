// flotilla models synth: a checkpoint with random weights, for benches and load tests.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/checkpoint/synth_writer.h"

namespace flotilla::apps {
namespace {

using checkpoint::SynthShape;

struct Size {
  const char* flag;
  std::int64_t SynthShape::*member;
};
constexpr Size kSizes[] = {{"--hidden", &SynthShape::hidden},
                           {"--layers", &SynthShape::layers},
                           {"--heads", &SynthShape::heads},
                           {"--kv-heads", &SynthShape::kv_heads},
                           {"--global-kv-heads", &SynthShape::global_kv_heads},
                           {"--head-dim", &SynthShape::head_dim},
                           {"--global-head-dim", &SynthShape::global_head_dim},
                           {"--mlp", &SynthShape::mlp},
                           {"--vocab", &SynthShape::vocab},
                           {"--context", &SynthShape::context},
                           {"--window", &SynthShape::window},
                           {"--period", &SynthShape::period}};

struct SynthOptions {
  checkpoint::SynthOptions write;
  std::string preset = "tiny";
  SynthShape given;
};

int synth(const CLI::App& command, SynthOptions& options) {
  auto shape = checkpoint::synth_preset(options.preset);
  if (!shape) {
    return report(Error{ErrorCode::kInvalidArgument,
                        "preset '" + options.preset + "' is none of tiny, 1b, 4b, 31b"});
  }
  for (const Size& size : kSizes) {
    if (command.count(size.flag) > 0) (*shape).*size.member = options.given.*size.member;
  }
  if (command.count("--bits") > 0) shape->bits = options.given.bits;
  if (command.count("--group") > 0) shape->group = options.given.group;
  if (options.write.tokenizer_from.empty()) {
    auto bundled = resolve_model("", default_models_dir());
    if (!bundled.ok()) return report(bundled.error());
    options.write.tokenizer_from = *bundled;
  }
  ProgressBar bar("writing " + options.write.folder);
  options.write.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
  };
  const auto written = checkpoint::write_synthetic(*shape, options.write);
  bar.finish();
  if (!written.ok()) return report(written.error());
  std::printf("%s: %lld parameters, %llu bytes in %zu files\n", options.write.folder.c_str(),
              static_cast<long long>(written->num_parameters),
              static_cast<unsigned long long>(written->num_bytes), written->num_files);
  return 0;
}

}  // namespace

void add_models_synth(CLI::App& models, int& exit_code) {
  auto o = std::make_shared<SynthOptions>();
  CLI::App* command = models.add_subcommand(
      "synth",
      "Write a checkpoint of Gemma 4 shape with random weights: it answers nonsense, at the speed "
      "of a real one");
  command->add_option("folder", o->write.folder, "Where to write; created")->required();
  command->add_option("--preset", o->preset, "Sizes to start from: tiny, 1b, 4b, 31b")
      ->capture_default_str();
  command->add_option("--tokenizer-from", o->write.tokenizer_from,
                      "Model folder whose tokenizer is copied; default: the bundled one");
  command->add_option("--shard-bytes", o->write.shard_bytes, "Largest weight file")
      ->capture_default_str();
  command->add_option("--seed", o->write.seed, "Same seed, same bytes")->capture_default_str();
  for (const Size& size : kSizes) {
    command->add_option(size.flag, o->given.*size.member, "Replaces the preset's value")
        ->check(CLI::Range(1, 1 << 24));
  }
  command->add_option("--bits", o->given.bits, "Affine coding")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}));
  command->add_option("--group", o->given.group, "Elements per scale")
      ->check(CLI::IsMember({32, 64, 128}));
  command->callback([o, command, &exit_code] { exit_code = synth(*command, *o); });
}

}  // namespace flotilla::apps
