// flotilla-cuda-check [PART...] [--source DIR] [--layers N]: checks and measures the CUDA backend
// on card 0. Parts: self, ops, bits, flagship-bits, models, recovery (all of them when none is
// named); bench (profile: only its last table); formats (products of every packed format);
// relaxations (what the bit-contract costs; --cublas-lt FILE names the library to compare with);
// and bf16, which needs no card. Exit status: 0 all good, 1 a failure, 2 no usable card.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <string>

#include "checks.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/worker/worker_process.h"

namespace {

using namespace flotilla;  // NOLINT: a program

int run(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 14);  // also when it ends in an abort
  std::set<std::string> parts;
  if (argc == 2 && std::strcmp(argv[1], "engine-worker") == 0) return worker::worker_process();
  std::string source = FLOTILLA_SOURCE_DIR;
  std::string cublas_lt;
  cuda_check::FlagshipOptions flagship;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--source") == 0 && i + 1 < argc) {
      source = argv[++i];
    } else if (std::strcmp(argv[i], "--cublas-lt") == 0 && i + 1 < argc) {
      cublas_lt = argv[++i];
    } else if (std::strcmp(argv[i], "--layers") == 0 && i + 1 < argc) {
      flagship.layers = std::atoi(argv[++i]);
    } else {
      parts.insert(argv[i]);
    }
  }
  if (parts.empty()) parts = {"self", "ops", "bits", "flagship-bits", "models", "recovery"};
  if (parts.contains("bf16")) {
    const int failures = cuda_check::report_bf16(source);
    if (parts.size() == 1) return failures == 0 ? 0 : 1;
  }
  auto made = backend::make_cuda_backend(0);
  if (!made.ok()) {
    std::printf("%s\n", made.error().message.c_str());
    return 2;
  }
  backend::Backend& backend = **made;
  std::printf("%s\n", backend.capabilities().device.c_str());
  int failures = 0;
  if (parts.contains("self")) failures += cuda_check::check_self_test(backend);
  if (parts.contains("ops")) failures += cuda_check::check_ops(backend);
  if (parts.contains("bits")) failures += cuda_check::check_bits(backend, false);
  if (parts.contains("models")) failures += cuda_check::check_models(backend, source);
  if (parts.contains("flagship-bits")) failures += cuda_check::check_bits(backend, true);
  flagship.only_profile = parts.contains("profile");
  if (flagship.only_profile || parts.contains("bench"))
    failures += cuda_check::bench_flagship(backend, flagship);
  if (parts.contains("formats")) failures += cuda_check::bench_formats(backend);
  made->reset();
  if (parts.contains("relaxations")) failures += cuda_check::measure_relaxations(cublas_lt);
  if (parts.contains("recovery")) failures += cuda_check::check_recovery(source);
  std::printf("%d failure(s)\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    return 1;
  }
}
