// The subcommands of `flotilla`. Each function adds one to `app`; its callback runs it and sets
// `exit_code`.
#pragma once

namespace CLI {
class App;
}

namespace flotilla::apps {

void add_run(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
void add_provider(CLI::App& app, int& exit_code);
void add_models(CLI::App& app, int& exit_code);
void add_models_synth(CLI::App& models, int& exit_code);
void add_models_pull(CLI::App& models, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_engine_worker(CLI::App& app, int& exit_code);

}  // namespace flotilla::apps
