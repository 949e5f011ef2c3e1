// flotilla-coordinator load, unload: orders to nodes, through a running coordinator.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/admin_client.h"
#include "apps/flotilla_coordinator/commands.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  AdminTarget target;
  std::string node, model;
};

void add_order(CLI::App& app, int& exit_code, const char* name, const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  auto arguments = std::make_shared<Arguments>();
  command->add_option("node", arguments->node, "name of the machine")->required();
  command->add_option("model", arguments->model, "name of the model")->required();
  add_admin_options(*command, arguments->target);
  command->callback([arguments, name = std::string(name), &exit_code] {
    const auto answer = ask_admin(arguments->target, "POST", "/v1/admin/" + name,
                                  {{"node", arguments->node}, {"model", arguments->model}});
    if (!answer.ok()) {
      exit_code = complain(answer.error());
    } else {
      std::printf("Ordered: %s '%s' on '%s'.\n", name.c_str(), arguments->model.c_str(),
                  arguments->node.c_str());
    }
  });
}

}  // namespace

void add_loads(CLI::App& app, int& exit_code) {
  add_order(app, exit_code, "load", "Have a node load a model");
  add_order(app, exit_code, "unload", "Have a node unload a model");
}

}  // namespace flotilla::apps
