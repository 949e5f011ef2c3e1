// flotilla doctor: what this machine is, whether its kernels compute the same bits every time, and
// whether its coordinator can be reached.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/link_target.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/backend/backend.h"
#include "flotilla/backend/card_stress.h"
#include "flotilla/backend/cpu/read_bandwidth.h"
#include "flotilla/backend/cpu/thread_pool.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/device_error.h"
#include "flotilla/backend/numerics.h"
#include "flotilla/checkpoint/model_folder.h"
#include "flotilla/provider/hardware.h"
#include "flotilla/provider/link_probe.h"

namespace flotilla::apps {
namespace {

struct DoctorOptions {
  int threads = 0;
  int op_stress = 0;
  std::string device = "all";
  bool checks_card() const { return device != "cpu"; }
  bool checks_cpu() const { return device != "cuda"; }
  std::string models_dir = default_models_dir();
  std::string state_dir = default_state_dir();
  LinkSettings link;
};

const char* name_of(backend::CpuTarget target) {
  switch (target) {
    case backend::CpuTarget::kScalar:
      return "scalar";
    case backend::CpuTarget::kAvx2:
      return "AVX2";
    case backend::CpuTarget::kAvx512:
      return "AVX-512";
    case backend::CpuTarget::kBest:
      break;
  }
  return "best";
}

// Every instruction set that runs here, with any number of threads, must give one numerics id; with
// --op-stress, each is also repeated and its rows are computed alone and among others. Returns the
// number of problems.
int check_kernels(const DoctorOptions& options, const std::string& id) {
  int problems = 0;
  using backend::CpuTarget;
  std::set<int> thread_counts = {1, 2, 3};
  thread_counts.insert(backend::usable_cores());
  if (options.threads > 0) thread_counts.insert(options.threads);
  for (const CpuTarget target : {CpuTarget::kScalar, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    std::string tried;
    std::int64_t outputs = 0;
    std::set<std::string> complaints;
    for (const int threads : thread_counts) {
      auto other = backend::make_cpu_backend({.num_threads = threads, .target = target});
      if (!other.ok()) {
        std::printf("  %-12s not here (%s)\n", name_of(target), other.error().message.c_str());
        break;
      }
      tried += (tried.empty() ? "" : ", ") + std::to_string(threads);
      const std::string with = " with " + std::to_string(threads) + " thread(s)";
      if (backend::numerics_id(**other) != id) complaints.insert("DIFFERENT BITS" + with);
      if (options.op_stress == 0) continue;
      const auto stress = backend::op_stress(**other, options.op_stress);
      outputs += stress.outputs;
      for (const auto& op : stress.drifting) complaints.insert("DRIFTS: " + op + with);
      for (const auto& op : stress.row_dependent) {
        complaints.insert("DEPENDS ON OTHER ROWS: " + op + with);
      }
    }
    if (tried.empty()) continue;
    std::printf("  %-12s %s with %s threads", name_of(target),
                complaints.empty() ? "same bits" : "PROBLEMS", tried.c_str());
    if (outputs > 0) {
      std::printf("; %d rounds each, %lld numbers compared", options.op_stress,
                  static_cast<long long>(outputs));
    }
    std::printf("\n");
    for (const std::string& complaint : complaints) std::printf("    %s\n", complaint.c_str());
    problems += static_cast<int>(complaints.size());
  }
  return problems;
}

// Dials the coordinator of this node as far as the handshake. Returns the number of problems.
int check_link(const DoctorOptions& options) {
  if (!has_node_state(options.state_dir)) {
    std::printf("link          this machine is not a node of a fleet (no join token in %s)\n",
                options.state_dir.c_str());
    return 0;
  }
  const auto probe = [&]() -> Result<provider::LinkProbe> {
    FLOTILLA_TRY(NodeState state, open_node_state(options.state_dir, ""));
    FLOTILLA_TRY(const LinkTarget target, link_target(std::move(state), options.link));
    std::printf("link          %s as node '%s'\n", target.websocket.url.c_str(),
                target.credentials.node.c_str());
    net::IoRuntime io(1);
    return provider::probe_link(io, {.websocket = target.websocket}, target.credentials);
  }();
  if (!probe.ok()) {
    std::printf("  FAILED      %s\n", probe.error().message.c_str());
    return 1;
  }
  std::printf("  accepted    %s; connected in %lld ms, coordinator proved its key in %lld ms\n",
              probe->peer.c_str(), static_cast<long long>(probe->connected.count()),
              static_cast<long long>(probe->answered.count()));
  return 0;
}

// Every kernel at the sizes of a 31B model. Returns the number of problems.
int stress_card(backend::Backend& backend, int rounds) {
  const auto begin = std::chrono::steady_clock::now();
  const auto stress = backend::stress_card(backend, rounds, [&](int done) {
    std::fprintf(stderr, "\r  card stress %d of %d rounds%s", done, rounds,
                 done == rounds ? "\n" : "");
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("  card stress %d cases of a 31B model, %d rounds in %.0f s, %lld words compared\n",
              stress.cases, stress.rounds, seconds.count(), static_cast<long long>(stress.words));
  std::printf("  digest      %s\n", stress.digest.c_str());
  for (const auto& name : stress.drifting) std::printf("    DRIFTS: %s\n", name.c_str());
  return stress.drifting.empty() ? 0 : 1;
}

// The card that models could run on; to have none is no problem. Returns the number of problems.
int check_card(const DoctorOptions& options) {
  const auto info = backend::cuda::probe_cuda_device(0);
  if (!info.ok()) {
    std::printf("card          none (%s)\n", info.error().message.c_str());
    return 0;
  }
  std::printf("card          %s, %d multiprocessors, %s, of which %s are free; CUDA %s\n",
              info->name.c_str(), info->multiprocessors, format_bytes(info->memory_bytes).c_str(),
              format_bytes(info->free_bytes).c_str(), info->driver.c_str());
  try {
    auto made = backend::make_cuda_backend(0);
    if (!made.ok()) {
      std::printf("  FAILED      %s\n", made.error().message.c_str());
      return 1;
    }
    backend::cuda::CudaDevice& device = *backend::cuda::cuda_device(**made);
    constexpr std::size_t kReadBytes = std::size_t{4} << 30;
    std::printf("  memory      %.2f TB/s read\n", device.read_bandwidth(kReadBytes, 5) / 1e12);
    const backend::cuda::SelfTest test = device.self_test();
    std::printf("  self test   %lld outputs by both kinds of matrix instruction, %lld differ\n",
                test.outputs, test.differences);
    std::printf("  numerics id %s\n", backend::numerics_id(**made).c_str());
    int problems = test.differences == 0 ? 0 : 1;
    if (options.op_stress > 0) {
      const auto stress = backend::op_stress(**made, options.op_stress);
      std::printf("  op stress   %d rounds, %lld numbers compared\n", options.op_stress,
                  static_cast<long long>(stress.outputs));
      for (const auto& op : stress.drifting) std::printf("    DRIFTS: %s\n", op.c_str());
      for (const auto& op : stress.row_dependent)
        std::printf("    DEPENDS ON OTHER ROWS: %s\n", op.c_str());
      problems += stress.ok() ? 0 : 1;
      problems += stress_card(**made, options.op_stress);
    }
    return problems;
  } catch (const backend::DeviceError& error) {
    std::printf("  FAILED      %s\n", error.what());
    return 1;
  }
}

int doctor(const DoctorOptions& options) {
  int problems = 0;
  const auto hardware = provider::probe_hardware(static_cast<std::uint32_t>(options.threads));
  std::printf("processor     %s, %u thread(s)\n", hardware.cpu.c_str(), hardware.num_threads);
  std::printf("memory        %s, of which flotilla may use %s; %s available now\n",
              format_bytes(hardware.memory_bytes).c_str(),
              format_bytes(hardware.memory_cap_bytes).c_str(),
              format_bytes(provider::available_memory_bytes()).c_str());
  std::printf("memory speed  %.1f GB/s read\n",
              backend::measure_read_bandwidth(options.threads) / 1e9);
  if (options.checks_card()) problems += check_card(options);

  auto backend = backend::make_cpu_backend({.num_threads = options.threads});
  if (!backend.ok()) return report(backend.error());
  const std::string id = backend::numerics_id(**backend);
  std::printf("kernels       %s\nnumerics id   %s\n", (*backend)->capabilities().device.c_str(),
              id.c_str());
  if (options.checks_cpu()) problems += check_kernels(options, id);

  auto models = checkpoint::scan_models(options.models_dir);
  if (!models.ok()) {
    std::printf("models        none: %s\n", models.error().message.c_str());
    problems += options.models_dir == default_models_dir() ? 0 : 1;  // that one was asked for
  } else {
    std::printf("models        %zu in %s\n", models->size(), options.models_dir.c_str());
    for (const auto& model : *models) {
      std::printf("  %-24s %s\n", model.name.c_str(),
                  model.ok() ? format_bytes(model.num_bytes).c_str() : model.problems[0].c_str());
      problems += model.ok() ? 0 : 1;
    }
  }
  problems += check_link(options);
  std::printf("%s\n", problems == 0 ? "No problem found."
                                    : (std::to_string(problems) + " problem(s) found.").c_str());
  return problems == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine: hardware, memory, kernels, models, link to the coordinator");
  command
      ->add_option("--op-stress", o->op_stress,
                   "Repeat every kernel this often, on every target, and compare bits")
      ->check(CLI::Range(1, 1000000));
  command->add_option("--device", o->device, "Whose kernels to check")
      ->check(CLI::IsMember({"all", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", o->threads, "0: one per core")
      ->envname("FLOTILLA_THREADS")
      ->check(CLI::Range(0, 1024));
  command->add_option("--models-dir", o->models_dir, "Folder with models")
      ->envname("FLOTILLA_MODELS_DIR")
      ->capture_default_str();
  command->add_option("--state-dir", o->state_dir, "Folder with this node's key and token")
      ->envname("FLOTILLA_STATE_DIR")
      ->capture_default_str();
  command->add_option("--coordinator", o->link.coordinator, "Default: what the token says")
      ->envname("FLOTILLA_COORDINATOR");
  command->add_option("--tls-ca-file", o->link.ca_file, "As for flotilla provider")
      ->envname("FLOTILLA_TLS_CA_FILE");
  command->add_flag("--insecure", o->link.insecure, "Allow plain ws:// to another machine");
  command->callback([o, &exit_code] { exit_code = doctor(*o); });
}

}  // namespace flotilla::apps
