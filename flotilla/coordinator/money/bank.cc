#include "flotilla/coordinator/money/bank.h"

#include <condition_variable>
#include <mutex>
#include <sstream>
#include <thread>
#include <unordered_map>

#include "flotilla/base/text.h"
#include "flotilla/coordinator/money/server_state.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookAround = 200ms;  // for changes that a command made
constexpr auto kFlushUsage = 1s;
constexpr auto kSignOfLife = 15s;
constexpr auto kRetire = 1h;
constexpr auto kRetry = 250ms;
constexpr auto kLastTries = 5s;
constexpr std::size_t kMaxPerCommit = 1'024;
constexpr std::size_t kMaxTasks = 1'024;

struct Asked {
  ReserveOrder order;
  Bank::Answered done;
  Reservation made = {};
  std::optional<Error> refusal = {};
};

JobId job_id_from_hex(const std::string& text) {
  JobId id;
  if (const auto bytes = from_hex(text); bytes && bytes->size() == id.bytes.size()) {
    std::copy(bytes->begin(), bytes->end(), id.bytes.begin());
  }
  return id;
}

Result<std::vector<OpenJob>> read_open_jobs(store::Database& database) {
  FLOTILLA_TRY(
      const auto rows,
      database.query("SELECT id, account, api_key, model, price, reserved, prompt_tokens, "
                     "streamed, nodes, cached_tokens, delivered FROM jobs WHERE state = 0"));
  std::vector<OpenJob> jobs;
  for (const store::Row& row : rows) {
    OpenJob job;
    job.order.job = job_id_from_hex(row.text(0));
    job.order.account.value = static_cast<std::uint64_t>(row.integer(1));
    job.order.key.value = static_cast<std::uint64_t>(row.integer(2));
    job.order.model = row.text(3);
    job.order.reservation = {row.integer(4), row.integer(5)};
    job.order.tokens.prompt = row.integer(6);
    job.streamed = row.integer(7) != 0;
    job.order.tokens.cached = row.integer(9);
    job.delivered = row.integer(10);
    std::istringstream nodes(row.text(8));
    for (std::string node; nodes >> node;) job.nodes.push_back(ProviderId{node});
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace

struct Bank::Impl {
  Impl(store::Database db, const Clock& c, BankOptions o,
       std::function<void(std::shared_ptr<const MoneyView>)> on)
      : database(std::move(db)), clock(c), options(o), on_view(std::move(on)) {}

  Status begin_run();
  // With the check that no other server writes: two would settle each other's jobs.
  Status own_transaction(const std::function<Status()>& body);
  Status look_around(bool in_transaction);
  void loop();
  // True when it is written.
  bool write(std::vector<Asked>& asked, std::vector<SettleOrder>& settled, Error* why);
  void write_all(std::vector<Asked> asked, std::vector<SettleOrder> settled);
  void chores();
  void flush_usage();
  void write_notes();
  void keep_for_later(std::vector<SettleOrder> settled);

  store::Database database;  // the rest on the bank's thread
  const Clock& clock;
  const BankOptions options;
  const std::function<void(std::shared_ptr<const MoneyView>)> on_view;
  std::int64_t run = 0;
  std::int64_t seen_change = -1;
  Clock::Instant looked{}, flushed{}, lived{}, retired{};
  bool more_to_retire = false;
  bool is_failing = false;  // for the log
  bool is_superseded = false;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Asked> asking;                                 // guarded by mutex
  std::vector<SettleOrder> settling;                         // guarded by mutex
  std::vector<std::pair<JobId, ProviderId>> moves;           // guarded by mutex
  std::unordered_map<JobId, TokenCounts> marks;              // guarded by mutex
  std::map<UsageKey, UsageCounts> usage;                     // guarded by mutex
  std::vector<std::function<void(store::Database&)>> tasks;  // guarded by mutex
  std::shared_ptr<const MoneyView> current;                  // guarded by mutex
  std::vector<OpenJob> open_jobs;                            // guarded by mutex
  std::size_t num_unanswered = 0;                            // guarded by mutex
  std::condition_variable answered;
  bool closing = false;  // guarded by mutex
  std::thread thread;
};

Status Bank::Impl::begin_run() {
  const std::int64_t now = clock.unix_seconds();
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const ServerState before, read_server_state(database));
    run = before.run + 1;
    FLOTILLA_TRY_STATUS(write_server_state(database, "run", run));
    FLOTILLA_TRY_STATUS(write_server_state(database, "run_began", now));
    FLOTILLA_TRY_STATUS(write_server_state(database, "recovery_s", options.recovery_s));
    FLOTILLA_TRY_STATUS(write_server_state(database, "alive", now));
    FLOTILLA_TRY(open_jobs, read_open_jobs(database));
    return look_around(true);
  }));
  looked = flushed = lived = clock.now();
  return ok_status();
}

Status Bank::Impl::own_transaction(const std::function<Status()>& body) {
  bool other = false;
  const Status done = database.transaction([&]() -> Status {
    FLOTILLA_TRY(const ServerState state, read_server_state(database));
    other = state.run != run;
    if (!other) return body();
    return Error{ErrorCode::kUnavailable,
                 "another coordinator has taken over the database of the accounts"};
  });
  if (other && !std::exchange(is_superseded, true)) {
    log::error("database_taken_over", {{"run", run}});
    if (options.on_superseded) options.on_superseded();
  }
  return done;
}

// What a command or another thread has changed. The counter is read with the rest, so that nothing
// is missed.
Status Bank::Impl::look_around(bool in_transaction) {
  std::shared_ptr<const MoneyView> fresh;
  const auto read = [&]() -> Status {
    FLOTILLA_TRY(const std::int64_t change, change_count(database));
    if (change == seen_change) return ok_status();
    FLOTILLA_TRY(fresh, read_money_view(database));
    seen_change = change;
    return ok_status();
  };
  FLOTILLA_TRY_STATUS(in_transaction ? read() : database.snapshot(read));
  if (!fresh) return ok_status();
  {
    std::lock_guard lock(mutex);
    current = fresh;
  }
  if (on_view) on_view(std::move(fresh));
  return ok_status();
}

bool Bank::Impl::write(std::vector<Asked>& asked, std::vector<SettleOrder>& settled, Error* why) {
  const Status written = own_transaction([&]() -> Status {
    FLOTILLA_TRY_STATUS(look_around(true));  // the prices in force at this moment
    JobMoney money(database, current->prices, run, options.fee_basis_points, clock.unix_seconds());
    for (const SettleOrder& order : settled) FLOTILLA_TRY_STATUS(money.settle(order));
    for (Asked& one : asked) FLOTILLA_TRY_STATUS(money.reserve(one.order, one.made, one.refusal));
    return money.write_back();
  });
  if (written.ok()) {
    is_failing = false;
    return true;
  }
  *why = written.error();
  seen_change = -1;  // what was read in the transaction may have been undone
  if (!std::exchange(is_failing, true)) {
    log::error("money_not_written", {{"reason", written.error().message},
                                     {"reservations", asked.size()},
                                     {"settlements", settled.size()}});
  }
  return false;
}

void Bank::Impl::keep_for_later(std::vector<SettleOrder> settled) {
  std::lock_guard lock(mutex);
  settling.insert(settling.begin(), std::make_move_iterator(settled.begin()),
                  std::make_move_iterator(settled.end()));
}

void Bank::Impl::write_all(std::vector<Asked> asked, std::vector<SettleOrder> settled) {
  Error why;
  if (write(asked, settled, &why)) {
    for (Asked& one : asked) {
      if (one.refusal) {
        one.done(std::move(*one.refusal));
      } else {
        one.done(one.made);
      }
    }
    return;
  }
  if (why.code != ErrorCode::kUnavailable && asked.size() + settled.size() > 1) {
    // One of them is at fault; the others must not suffer.
    for (SettleOrder& order : settled) write_all({}, {std::move(order)});
    for (Asked& one : asked) {
      std::vector<Asked> alone;
      alone.push_back(std::move(one));
      write_all(std::move(alone), {});
    }
    return;
  }
  for (Asked& one : asked) {
    // The commit may have gone through although we were told otherwise.
    if (one.made.held()) {
      SettleOrder back{one.order.job, one.order.account, one.order.key, one.order.model, one.made};
      back.refund = true;
      back.outcome = "unavailable";
      settled.push_back(std::move(back));
    }
    one.done(Error{ErrorCode::kUnavailable, "the accounts cannot be reached now; try again"});
  }
  if (settled.empty()) return;
  if (why.code == ErrorCode::kUnavailable) return keep_for_later(std::move(settled));
  log::error("job_not_settled",
             {{"job", protocol::to_hex(settled[0].job)}, {"reason", why.message}});
}

void Bank::Impl::flush_usage() {
  std::map<UsageKey, UsageCounts> counted;
  {
    std::lock_guard lock(mutex);
    counted.swap(usage);
  }
  if (counted.empty()) return;
  const Status written = own_transaction([&] { return add_usage(database, counted); });
  if (written.ok()) return;
  if (!std::exchange(is_failing, true))
    log::error("usage_not_written", {{"reason", written.error().message}});
  std::lock_guard lock(mutex);
  for (const auto& [key, counts] : counted) usage[key].add(counts);
}

// What open rows are to tell after a crash: where the job went, and how much its client has.
void Bank::Impl::write_notes() {
  std::vector<std::pair<JobId, ProviderId>> moved;
  std::unordered_map<JobId, TokenCounts> marked;
  {
    std::lock_guard lock(mutex);
    moved.swap(moves);
    marked.swap(marks);
  }
  if (moved.empty() && marked.empty()) return;
  const Status written = own_transaction([&]() -> Status {
    for (const auto& [job, node] : moved) {
      auto done = database.execute(
          "UPDATE jobs SET nodes = nodes || ' ' || :p1 WHERE id = :p2 AND state = 0",
          {node.value, protocol::to_hex(job)});
      if (!done.ok()) return std::move(done).error();
    }
    for (const auto& [job, tokens] : marked) {
      auto done = database.execute(
          "UPDATE jobs SET delivered = :p1, cached_tokens = :p2 WHERE id = :p3 AND state = 0",
          {tokens.output, tokens.cached, protocol::to_hex(job)});
      if (!done.ok()) return std::move(done).error();
    }
    return ok_status();
  });
  if (written.ok()) {
    is_failing = false;
    return;
  }
  if (!std::exchange(is_failing, true))
    log::error("notes_of_jobs_not_written", {{"reason", written.error().message}});
  if (written.error().code != ErrorCode::kUnavailable) return;
  std::lock_guard lock(mutex);
  moves.insert(moves.begin(), std::make_move_iterator(moved.begin()),
               std::make_move_iterator(moved.end()));
  marks.merge(marked);  // what is newer stays
}

void Bank::Impl::chores() {
  const auto now = clock.now();
  if (now - looked >= kLookAround) {
    looked = now;
    if (Status seen = look_around(false); !seen.ok() && !std::exchange(is_failing, true)) {
      log::error("money_not_read", {{"reason", seen.error().message}});
    }
  }
  if (now - flushed >= kFlushUsage) {
    flushed = now;
    flush_usage();
  }
  if (now - lived >= kSignOfLife) {
    lived = now;
    (void)own_transaction(
        [&] { return write_server_state(database, "alive", clock.unix_seconds()); });
  }
  if (more_to_retire || retired == Clock::Instant{} || now - retired >= kRetire) {
    retired = now;
    const auto more = retire_some(database, options.retention, clock.unix_seconds());
    if (!more.ok()) log::warn("old_rows_stay", {{"reason", more.error().message}});
    more_to_retire = more.ok() && *more;
  }
}

void Bank::Impl::loop() {
  std::optional<std::chrono::steady_clock::time_point> give_up;
  for (;;) {
    std::vector<Asked> asked;
    std::vector<SettleOrder> settled;
    std::vector<std::function<void(store::Database&)>> todo;
    bool is_closing = false, is_last = false;
    {
      std::unique_lock lock(mutex);
      const auto is_work = [&] {
        const bool is_late = !settling.empty() || !moves.empty();
        return closing || !asking.empty() || !tasks.empty() || (is_late && !is_failing);
      };
      wake.wait_for(lock, is_failing ? kRetry : kLookAround, is_work);
      const auto take = [](auto& from, auto& to) {
        const auto n = static_cast<std::ptrdiff_t>(std::min(from.size(), kMaxPerCommit));
        to.assign(std::make_move_iterator(from.begin()), std::make_move_iterator(from.begin() + n));
        from.erase(from.begin(), from.begin() + n);
      };
      take(settling, settled);
      take(asking, asked);
      todo.swap(tasks);
      is_closing = closing;
      is_last = closing && settling.empty() && asking.empty();
    }
    const std::size_t num_asked = asked.size();
    if (num_asked > 0 || !settled.empty()) write_all(std::move(asked), std::move(settled));
    if (num_asked > 0) {
      std::lock_guard lock(mutex);
      num_unanswered -= num_asked;
      answered.notify_all();
    }
    write_notes();
    for (const auto& task : todo) task(database);
    if (!is_closing) {
      chores();
      continue;
    }
    if (is_last) flush_usage();
    std::unique_lock lock(mutex);
    if (!asking.empty()) continue;  // each is owed its answer
    if (settling.empty() && usage.empty()) return;
    if (!is_failing) continue;
    const auto now = std::chrono::steady_clock::now();
    if (!give_up) give_up = now + kLastTries;
    if (now >= *give_up) {
      log::error("jobs_left_open", {{"jobs", settling.size()}});
      return;
    }
    lock.unlock();
    std::this_thread::sleep_for(kRetry);
  }
}

Result<std::unique_ptr<Bank>> Bank::open(
    store::Database database, const Clock& clock, BankOptions options,
    std::function<void(std::shared_ptr<const MoneyView>)> on_view) {
  auto impl = std::make_unique<Impl>(std::move(database), clock, options, std::move(on_view));
  FLOTILLA_TRY_STATUS(impl->begin_run());
  if (!impl->open_jobs.empty()) {
    log::warn("jobs_of_an_earlier_run",
              {{"jobs", impl->open_jobs.size()}, {"settled_within_s", options.recovery_s}});
  }
  impl->thread = std::thread([raw = impl.get()] { raw->loop(); });
  return std::unique_ptr<Bank>(new Bank(std::move(impl)));
}

Bank::Bank(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Bank::~Bank() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->closing = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
}

void Bank::reserve(ReserveOrder order, Answered done) {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->asking.size() < impl_->options.max_waiting && !impl_->closing) {
      impl_->asking.push_back({std::move(order), std::move(done)});
      ++impl_->num_unanswered;
      done = nullptr;
    }
  }
  if (done)
    return done(Error{ErrorCode::kUnavailable, "the accounts have too much to do (" +
                                                   std::to_string(impl_->options.max_waiting) +
                                                   " reservations wait); try again"});
  impl_->wake.notify_one();
}

void Bank::settle(SettleOrder order) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->settling.push_back(std::move(order));
  }
  impl_->wake.notify_one();
}

void Bank::continued_on(const JobId& job, const ProviderId& node) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->moves.emplace_back(job, node);
  }
  impl_->wake.notify_one();
}

void Bank::delivered(const JobId& job, const TokenCounts& so_far) {
  std::lock_guard lock(impl_->mutex);
  impl_->marks[job] = so_far;
}

void Bank::count(const UsageKey& key, const UsageCounts& counts) {
  std::lock_guard lock(impl_->mutex);
  impl_->usage[key].add(counts);
}

bool Bank::post(std::function<void(store::Database&)> task) {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->tasks.size() >= kMaxTasks || impl_->closing) return false;
    impl_->tasks.push_back(std::move(task));
  }
  impl_->wake.notify_one();
  return true;
}

std::shared_ptr<const MoneyView> Bank::view() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->current;
}

std::vector<OpenJob> Bank::take_open_jobs() {
  std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->open_jobs, {});
}

void Bank::wait_until_answered() {
  std::unique_lock lock(impl_->mutex);
  impl_->answered.wait(lock, [&] { return impl_->num_unanswered == 0; });
}

}  // namespace flotilla::coordinator
