#include "flotilla/coordinator/money/job_money.h"

#include <algorithm>

#include "flotilla/base/check.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {

constexpr std::int64_t kBasisPoints = 10'000;
constexpr std::int64_t kOpen = 0, kSettled = 1, kRefunded = 2;

template <class Id>
std::int64_t number(Id id) {
  return static_cast<std::int64_t>(id.value);
}

Error no_funds(std::string what, Micro available, Micro total, Micro reserved, Micro needed) {
  return Error{ErrorCode::kInsufficientFunds,
               what + ": this request may cost up to " + format_amount(needed) +
                   ", available are " + format_amount(available) + " (" + format_amount(total) +
                   " less " + format_amount(reserved) + " reserved by requests under way)"};
}

}  // namespace

std::int64_t day_of(std::int64_t unix_seconds) { return unix_seconds / 86'400; }

void UsageCounts::add(const UsageCounts& other) {
  jobs += other.jobs;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  output_tokens += other.output_tokens;
  charged += other.charged;
}

Status add_usage(store::Database& database, const std::map<UsageKey, UsageCounts>& usage) {
  for (const auto& [key, counts] : usage) {
    auto done = database.execute(
        "INSERT INTO usage_days (day, account, api_key, model, jobs, prompt_tokens, cached_tokens, "
        "output_tokens, charged) VALUES (:p1, :p2, :p3, :p4, :p5, :p6, :p7, :p8, :p9) "
        "ON CONFLICT (day, account, api_key, model) DO UPDATE SET "
        "jobs = usage_days.jobs + excluded.jobs, "
        "prompt_tokens = usage_days.prompt_tokens + excluded.prompt_tokens, "
        "cached_tokens = usage_days.cached_tokens + excluded.cached_tokens, "
        "output_tokens = usage_days.output_tokens + excluded.output_tokens, "
        "charged = usage_days.charged + excluded.charged",
        {key.day, static_cast<std::int64_t>(key.account), static_cast<std::int64_t>(key.api_key),
         key.model, counts.jobs, counts.prompt_tokens, counts.cached_tokens, counts.output_tokens,
         counts.charged});
    if (!done.ok()) return std::move(done).error();
  }
  return ok_status();
}

bool is_own_use(AccountId payer, const std::vector<ServedShare>& served) {
  return !served.empty() &&
         std::all_of(served.begin(), served.end(),
                     [&](const ServedShare& share) { return share.owner == payer; });
}

std::vector<LedgerEntry> divide_charge(AccountId payer, Micro charge, std::int64_t fee_basis_points,
                                       const std::vector<ServedShare>& served) {
  FLOTILLA_CHECK(charge >= 0 && fee_basis_points >= 0 && fee_basis_points <= kBasisPoints,
                 "a charge and a fee within their ranges");
  std::vector<LedgerEntry> entries{{payer, -charge}};
  std::uint64_t all = 0;
  for (const ServedShare& share : served) all += share.tokens;
  const Micro earned =
      charge - share_of(charge, static_cast<std::uint64_t>(fee_basis_points), kBasisPoints);
  Micro left = charge;
  for (const ServedShare& share : served) {
    if (all == 0) break;
    const Micro part = share_of(earned, share.tokens, all);
    entries.push_back({share.owner, part});
    left -= part;
  }
  entries.push_back({kPlatformAccount, left});
  return merged(entries);
}

JobMoney::JobMoney(store::Database& database, const PriceBook& prices, std::int64_t run,
                   std::int64_t fee_basis_points, std::int64_t now)
    : database_(database),
      prices_(prices),
      run_(run),
      fee_basis_points_(fee_basis_points),
      now_(now) {}

Result<JobMoney::AccountState*> JobMoney::account(AccountId id) {
  if (const auto at = accounts_.find(id); at != accounts_.end()) return &at->second;
  FLOTILLA_TRY(
      const auto rows,
      database_.query("SELECT balance, reserved FROM accounts WHERE id = :p1", {number(id)}));
  if (rows.empty()) {
    return Error{ErrorCode::kInternal, "account " + std::to_string(id.value) + " is missing"};
  }
  AccountState state;
  state.balance = state.balance_before = rows[0].integer(0);
  state.reserved = state.reserved_before = rows[0].integer(1);
  return &accounts_.emplace(id, state).first->second;
}

Result<JobMoney::KeyState*> JobMoney::key(ApiKeyId id) {
  if (const auto at = keys_.find(id); at != keys_.end()) return &at->second;
  FLOTILLA_TRY(
      const auto rows,
      database_.query("SELECT spend_limit, spent, reserved, expires, revoked FROM api_keys "
                      "WHERE id = :p1",
                      {number(id)}));
  KeyState state;
  if (!rows.empty()) {
    state.exists = true;
    if (!rows[0].is_null(0)) state.limit = rows[0].integer(0);
    state.spent = state.spent_before = rows[0].integer(1);
    state.reserved = state.reserved_before = rows[0].integer(2);
    if (!rows[0].is_null(3)) state.expires = rows[0].integer(3);
    state.revoked = !rows[0].is_null(4);
  }
  return &keys_.emplace(id, state).first->second;
}

Status JobMoney::reserve(const ReserveOrder& order, Reservation& made,
                         std::optional<Error>& refusal) {
  made = {};
  refusal.reset();
  const PriceRow* price = prices_.in_force(order.model, now_);
  if (price == nullptr || price->price.is_free()) return ok_status();
  const Micro amount = cost_of(price->price, {order.prompt_tokens, 0, order.max_output_tokens});
  FLOTILLA_TRY(AccountState * payer, account(order.account));
  FLOTILLA_TRY(KeyState * with, key(order.key));
  if (!with->exists || with->revoked || (with->expires && *with->expires <= now_)) {
    refusal = Error{ErrorCode::kUnauthenticated, "the API key was revoked or has expired"};
    return ok_status();
  }
  // Both differences are of numbers from 0 to 10^18.
  if (const Micro available = payer->balance - payer->reserved; amount > available) {
    refusal = no_funds("the account's balance", available, payer->balance, payer->reserved, amount);
    return ok_status();
  }
  if (with->limit) {
    const Micro left = *with->limit - with->spent - with->reserved;
    if (amount > left) {
      refusal = no_funds("the key's spend limit of " + format_amount(*with->limit), left,
                         *with->limit - with->spent, with->reserved, amount);
      return ok_status();
    }
  }
  std::string nodes;
  for (const ProviderId& node : order.nodes) nodes += (nodes.empty() ? "" : " ") + node.value;
  auto inserted = database_.execute(
      "INSERT INTO jobs (id, run, account, api_key, model, streamed, price, reserved, created, "
      "prompt_tokens, nodes) VALUES (:p1, :p2, :p3, :p4, :p5, :p6, :p7, :p8, :p9, :p10, :p11)",
      {protocol::to_hex(order.job), run_, number(order.account), number(order.key), order.model,
       std::int64_t{order.streamed}, price->id, amount, now_, order.prompt_tokens, nodes});
  if (!inserted.ok()) return std::move(inserted).error();
  payer->reserved += amount;
  with->reserved += amount;
  made = {price->id, amount};
  return ok_status();
}

Status JobMoney::settle(const SettleOrder& order) {
  FLOTILLA_CHECK(order.reservation.held(), "only what was reserved is settled");
  const PriceRow* price = prices_.by_id(order.reservation.price);
  if (price == nullptr) {
    return Error{ErrorCode::kInternal, "the price of job " + protocol::to_hex(order.job) +
                                           ", row " + std::to_string(order.reservation.price) +
                                           ", is missing"};
  }
  const bool is_free = order.refund || is_own_use(order.account, order.served);
  // Nobody is charged more than was held, whatever a node reports.
  const Micro charge =
      is_free ? 0 : std::min(cost_of(price->price, order.tokens), order.reservation.amount);
  const TokenCounts counted = order.refund ? TokenCounts{} : order.tokens;
  auto ended = database_.execute(
      "UPDATE jobs SET state = :p1, ended = :p2, outcome = :p3, prompt_tokens = :p4, "
      "cached_tokens = :p5, output_tokens = :p6, charged = :p7 WHERE id = :p8 AND state = :p9",
      {order.refund ? kRefunded : kSettled, now_, order.outcome, counted.prompt, counted.cached,
       counted.output, charge, protocol::to_hex(order.job), kOpen});
  if (!ended.ok()) return std::move(ended).error();
  if (*ended == 0) return ok_status();  // told twice
  FLOTILLA_TRY(AccountState * payer, account(order.account));
  FLOTILLA_TRY(KeyState * with, key(order.key));
  payer->reserved -= order.reservation.amount;
  if (with->exists) {
    with->reserved -= order.reservation.amount;
    with->spent += charge;
  }
  if (charge > 0) FLOTILLA_TRY_STATUS(move(order, charge));
  if (!order.refund) {
    usage_[{day_of(now_), order.account.value, order.key.value, order.model}].add(
        {1, counted.prompt, counted.cached, counted.output, charge});
  }
  return ok_status();
}

Status JobMoney::move(const SettleOrder& order, Micro charge) {
  LedgerTransaction transaction{"job", now_, "job:" + protocol::to_hex(order.job)};
  transaction.entries = divide_charge(order.account, charge, fee_basis_points_, order.served);
  for (const LedgerEntry& entry : transaction.entries) {
    FLOTILLA_TRY(AccountState * of, account(entry.account));
    const auto balance = add_checked(of->balance, entry.amount);
    if (!balance) return Error{ErrorCode::kInternal, "a balance exceeds 64 bits"};
    of->balance = *balance;
  }
  if (next_ledger_id_ == 0) {
    FLOTILLA_TRY(next_ledger_id_, next_ledger_id(database_));
  }
  return post(database_, next_ledger_id_++, transaction);
}

Status JobMoney::write_back() {
  for (const auto& [id, state] : accounts_) {
    if (state.balance == state.balance_before && state.reserved == state.reserved_before) continue;
    auto done =
        database_.execute("UPDATE accounts SET balance = :p1, reserved = :p2 WHERE id = :p3",
                          {state.balance, state.reserved, number(id)});
    if (!done.ok()) return std::move(done).error();
  }
  for (const auto& [id, state] : keys_) {
    if (state.spent == state.spent_before && state.reserved == state.reserved_before) continue;
    auto done = database_.execute("UPDATE api_keys SET spent = :p1, reserved = :p2 WHERE id = :p3",
                                  {state.spent, state.reserved, number(id)});
    if (!done.ok()) return std::move(done).error();
  }
  return add_usage(database_, usage_);
}

}  // namespace flotilla::coordinator
