#include "flotilla/settings/command_line.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <vector>

namespace flotilla::settings {
namespace {

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    app_.require_subcommand(1);
    CLI::App* serve = app_.add_subcommand("serve", "");
    serve->add_option("--listen", listen_, "");
    serve->add_option("model", model_, "");
    serve->callback([this] { ++calls_; });
    app_.add_subcommand("keys", "")->require_subcommand(1)->add_subcommand("revoke", "");
  }
  // What is printed, and checks that it is refused without running anything.
  std::string refused(std::vector<const char*> line) {
    line.insert(line.begin(), "flotilla");
    testing::internal::CaptureStderr();
    const auto result = parse_command_line(app_, static_cast<int>(line.size()), line.data());
    EXPECT_TRUE(result.done);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(calls_, 0);
    return testing::internal::GetCapturedStderr();
  }
  CLI::App app_{"test", "flotilla"};
  std::string listen_, model_;
  int calls_ = 0;
};

TEST_F(CommandLineTest, AFlagWinsOverTheEnvironmentWhereCommandsShareAVariable) {
  ASSERT_EQ(::setenv("FLOTILLA_SHARED_OPTION", "environment", 1), 0);
  for (const char* called : {"first", "last"}) {
    CLI::App app{"test", "flotilla"};
    std::string value;
    for (const char* name : {"first", "last"}) {
      take_from_environment(*app.add_subcommand(name, "")->add_option("--value", value, "it"),
                            value, "FLOTILLA_SHARED_OPTION");
    }
    EXPECT_EQ(value, "environment");
    const char* line[] = {"flotilla", called, "--value", "flag"};
    EXPECT_FALSE(parse_command_line(app, 4, line).done);
    EXPECT_EQ(value, "flag") << called;
  }
  ::unsetenv("FLOTILLA_SHARED_OPTION");
}

TEST_F(CommandLineTest, UnknownOptionsNameTheNearest) {
  EXPECT_NE(refused({"serve", "--lisen=1"})
                .find("flotilla serve: unknown option '--lisen'; did you mean '--listen'?"),
            std::string::npos);
}

TEST_F(CommandLineTest, UnknownCommandsNameTheNearest) {
  EXPECT_NE(refused({"serv"}).find("flotilla: unknown command 'serv'; did you mean 'serve'?"),
            std::string::npos);
  EXPECT_NE(refused({"keys", "revok", "7"}).find("flotilla keys: unknown command 'revok'; did"),
            std::string::npos);
}

TEST_F(CommandLineTest, NothingNearIsNotInvented) {
  const std::string said = refused({"serve", "--zzzzzz", "a", "b"});
  EXPECT_NE(said.find("unknown option '--zzzzzz'\n"), std::string::npos) << said;
}

TEST_F(CommandLineTest, AnArgumentTooManyIsNamed) {
  EXPECT_NE(refused({"serve", "model", "other"}).find("flotilla serve: unknown argument 'other'"),
            std::string::npos);
}

TEST_F(CommandLineTest, AGoodLineRunsItsCommand) {
  const std::vector<const char*> line = {"flotilla", "serve", "--listen=x"};
  EXPECT_FALSE(parse_command_line(app_, 3, line.data()).done);
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(listen_, "x");
}

}  // namespace
}  // namespace flotilla::settings
