#include "flotilla/coordinator/money/usage_report.h"

#include "flotilla/coordinator/money/testing.h"

namespace flotilla::coordinator {
namespace {

class UsageReport : public Books {
 protected:
  std::string csv(const std::string& query, std::optional<AccountId> of) {
    auto question = parse_usage_question(query, 20'000, !of.has_value());
    if (!question.ok()) return to_string(question.error());
    question->account = of;
    const auto lines = report_usage(database, *question);
    return lines.ok() ? usage_as_csv(*question, *lines) : to_string(lines.error());
  }
};
INSTANTIATE_TEST_SUITE_P(On, UsageReport, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST(Days, AreReadAndWritten) {
  EXPECT_EQ(*parse_day("1970-01-01"), 0);
  EXPECT_EQ(*parse_day("2024-02-29"), 19'782);
  for (const std::int64_t day : {0, 1, 19'782, 20'000, 40'000})
    EXPECT_EQ(*parse_day(format_day(day)), day);
  for (const char* bad : {"", "2023-02-29", "2024-13-01", "2024-00-10", "24-01-01", "2024-1-1",
                          "2024-01-0x", "2024/01/01"}) {
    EXPECT_FALSE(parse_day(bad).ok()) << bad;
  }
}

TEST_P(UsageReport, SumsByWhatWasAskedFor) {
  const Account alice = account("alice", 0), bob = account("bob", 0);
  KeyOrder first{.name = "say, \"hi\"", .account = alice.id, .expires = {}, .spend_limit = {}};
  ASSERT_TRUE(create_key(database, first, 1).ok());
  const KeyRecord second = key(bob.id);
  ASSERT_TRUE(add_usage(database, {{{19'999, alice.id.value, 1, "m"}, {1, 10, 5, 20, 100}},
                                   {{20'000, alice.id.value, 1, "m"}, {2, 30, 0, 40, 200}},
                                   {{20'000, alice.id.value, 1, "n"}, {1, 1, 0, 1, 1}},
                                   {{19'000, alice.id.value, 1, "n"}, {9, 9, 9, 9, 9}},
                                   {{20'000, bob.id.value, second.id.value, "m"}, {7, 7, 7, 7, 7}}})
                  .ok());
  const std::string sums =
      "requests,input_tokens,cached_input_tokens,output_tokens,charged_micro\r\n";
  EXPECT_EQ(csv("", alice.id), "day,model," + sums +
                                   "2024-10-03,m,1,10,5,20,100\r\n"
                                   "2024-10-04,m,2,30,0,40,200\r\n"
                                   "2024-10-04,n,1,1,0,1,1\r\n");
  EXPECT_EQ(csv("group_by=key", alice.id),
            "key_id,key_name," + sums + "1,\"say, \"\"hi\"\"\",4,41,5,61,301\r\n");
  EXPECT_EQ(csv("group_by=&from=2024-10-04", alice.id), sums + "3,31,0,41,201\r\n");
  EXPECT_EQ(csv("group_by=account%2Cmodel&to=2024-10-04&from=2024-10-04", std::nullopt),
            "account,model," + sums + "alice,m,2,30,0,40,200\r\nalice,n,1,1,0,1,1\r\n" +
                "bob,m,7,7,7,7,7\r\n");
}

TEST_P(UsageReport, MoreLinesThanAreGivenIsAFaultOfTheQuestion) {
  std::map<UsageKey, UsageCounts> usage;
  for (int i = 0; i < 10'001; ++i)
    usage[{20'000, kDefaultAccount.value, 1, "m" + std::to_string(i)}] = {1, 1, 0, 1, 1};
  ASSERT_TRUE(database.transaction([&] { return add_usage(database, usage); }).ok());
  const std::string answer = csv("", kDefaultAccount);
  EXPECT_NE(answer.find("invalid_argument"), std::string::npos);
  EXPECT_NE(answer.find("10000 lines"), std::string::npos);
}

TEST_P(UsageReport, RefusesWhatItDoesNotKnow) {
  for (const char* bad :
       {"from=2024-10-05", "from=x", "group_by=day,colour", "to=1", "group_by=account"}) {
    EXPECT_NE(csv(bad, kDefaultAccount).find("invalid_argument"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace flotilla::coordinator
