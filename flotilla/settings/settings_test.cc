#include "flotilla/settings/settings.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

namespace flotilla::settings {
namespace {

struct Config {
  std::string listen = "127.0.0.1:1";
  std::int64_t threads = 2;
  bool insecure = false;
  std::vector<std::string> origins;
  std::string key_file;
};

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    settings_.add("listen", &config_.listen, "address");
    settings_.add("threads", &config_.threads, 1, 64, "threads");
    settings_.add("insecure", &config_.insecure, "plain");
    settings_.add("cors.origins", &config_.origins, "origins");
    settings_.add("tls.key_file", &config_.key_file, "key", true);
    settings_.bind_flags(app_);
  }
  Status load(std::vector<std::string> arguments, const std::string& toml = "",
              std::vector<std::string> env = {}) {
    if (!toml.empty()) {
      path_ = ::testing::TempDir() + "settings_test_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
      std::ofstream(path_) << toml;
      arguments.insert(arguments.begin(), "--config=" + path_);
    }
    std::reverse(arguments.begin(), arguments.end());
    app_.parse(arguments);
    return settings_.load(env);
  }
  CLI::App app_;
  Config config_;
  Settings settings_;
  std::string path_;
};

TEST_F(SettingsTest, FlagsBeatEnvironmentBeatsFileBeatsDefaults) {
  ASSERT_TRUE(load({"--threads=5"}, "threads = 3\nlisten = 'file:1'\n[cors]\norigins = ['a', 'b']",
                   {"FLOTILLA_THREADS=4", "FLOTILLA_LISTEN=env:1", "HOME=/x"})
                  .ok());
  EXPECT_EQ(config_.threads, 5);
  EXPECT_EQ(config_.listen, "env:1");
  EXPECT_EQ(config_.origins, (std::vector<std::string>{"a", "b"}));
}

TEST_F(SettingsTest, UnknownKeysNameTheNearest) {
  EXPECT_NE(load({}, "lisen = 'x'").error().message.find("did you mean 'listen'"),
            std::string::npos);
}
TEST_F(SettingsTest, UnknownKeysInATableAreRefused) {
  EXPECT_NE(load({}, "[tls]\nkeyfile = 'x'").error().message.find("tls.key_file"),
            std::string::npos);
}
TEST_F(SettingsTest, UnknownVariablesNameTheNearest) {
  EXPECT_NE(load({}, "", {"FLOTILLA_THREAD=1"}).error().message.find("FLOTILLA_THREADS"),
            std::string::npos);
}
TEST_F(SettingsTest, RangesAreStated) {
  EXPECT_NE(load({"--threads=0"}).error().message.find("between 1 and 64"), std::string::npos);
}
TEST_F(SettingsTest, WrongTypesNameFileLineAndKey) {
  const std::string message = load({}, "\nthreads = 'many'").error().message;
  EXPECT_NE(message.find("line 2, threads"), std::string::npos) << message;
}
TEST_F(SettingsTest, BrokenTomlNamesTheLine) {
  EXPECT_NE(load({}, "a = \n b").error().message.find("line"), std::string::npos);
}
TEST_F(SettingsTest, VariablesOfOtherCommandsOfTheProgramAreNoMistake) {
  std::string other;
  CLI::App app;
  Settings of_other_command;
  of_other_command.add("other.thing", &other, "");
  of_other_command.bind_flags(app);
  EXPECT_TRUE(load({}, "", {"FLOTILLA_OTHER_THING=1"}).ok());
  EXPECT_TRUE(load({}, "", {"FLOTILLA_API_KEY=k", "FLOTILLA_COORDINATOR_URL=u"}).ok());
  EXPECT_FALSE(load({}, "", {"FLOTILLA_OTHER_THINK=1"}).ok());
}
TEST_F(SettingsTest, AConfigFileThatCannotBeReadIsAnError) {
  const Status folder = load({"--config=" + ::testing::TempDir()});
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("directory"), std::string::npos) << folder.error().message;
}
TEST_F(SettingsTest, AMissingConfigFileIsNamed) {
  EXPECT_NE(load({"--config=/nonexistent.toml"}).error().message.find("/nonexistent.toml"),
            std::string::npos);
}
TEST_F(SettingsTest, BooleanFlagsStandAlone) {
  ASSERT_TRUE(load({"--insecure", "--cors-origins=x", "--cors-origins=y"}).ok());
  EXPECT_TRUE(config_.insecure);
  EXPECT_EQ(config_.origins.size(), 2u);
}
TEST_F(SettingsTest, BooleanFlagsCanTurnOff) {
  ASSERT_TRUE(load({"--insecure=false"}, "insecure = true").ok());
  EXPECT_FALSE(config_.insecure);
}
TEST_F(SettingsTest, SecretsAreNotDescribed) {
  ASSERT_TRUE(load({"--tls-key-file=/hidden"}).ok());
  EXPECT_EQ(settings_.describe().find("hidden"), std::string::npos);
  EXPECT_NE(settings_.describe().find("threads=2"), std::string::npos);
}

}  // namespace
}  // namespace flotilla::settings
