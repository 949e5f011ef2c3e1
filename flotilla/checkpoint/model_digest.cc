#include "flotilla/checkpoint/model_digest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "flotilla/base/model_files.h"
#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/checkpoint/digest_cache.h"
#include "flotilla/checkpoint/weight_files.h"
#include "flotilla/log/log.h"

namespace flotilla::checkpoint {
namespace {

// A file written this recently may change again within the clock tick of its time stamp: its sum is
// not remembered.
constexpr std::int64_t kSettleNs = 2'000'000'000;

struct Job {
  std::string path;       // relative
  std::string full_path;  // canonical
  FileStamp stamp;
  std::optional<std::string> cached;
  std::string sha256;
};

std::string canonical(const std::string& path) {
  std::error_code ec;
  const std::filesystem::path real = std::filesystem::canonical(path, ec);
  return ec ? path : real.string();
}

Result<std::vector<Job>> list_jobs(const std::string& folder, const DigestCache& cache) {
  FLOTILLA_TRY(const WeightFiles weights, find_weight_files(folder));
  std::vector<std::string> names = weights.names;
  // A file that is absent on one node and present on another makes the digests differ.
  for (const char* name : kModelSideFiles) {
    if (stamp_file(folder + "/" + name).ok()) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  std::vector<Job> jobs;
  for (const std::string& name : names) {
    Job job;
    job.path = name;
    job.full_path = canonical(folder + "/" + name);
    FLOTILLA_TRY(job.stamp, stamp_file(job.full_path));
    job.cached = cache.find(job.full_path, job.stamp);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// Hashes the given jobs, largest first so that the threads end together.
Status hash_jobs(std::vector<Job*> jobs, const DigestProgress& progress, int num_threads) {
  std::sort(jobs.begin(), jobs.end(),
            [](const Job* a, const Job* b) { return a->stamp.size > b->stamp.size; });
  std::uint64_t total = 0;
  for (const Job* job : jobs) total += job->stamp.size;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::uint64_t done = 0;        // guarded by mutex
  std::optional<Error> failure;  // guarded by mutex
  const std::function<void(std::uint64_t)> report = [&](std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (progress) progress(done, total);
  };
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < jobs.size();) {
      Job& job = *jobs[i];
      auto digest = sha256_file(job.full_path, report);
      const auto after = stamp_file(job.full_path);
      const std::lock_guard lock(mutex);
      if (!digest.ok()) {
        failure = std::move(digest).error();
      } else if (!after.ok() || !(*after == job.stamp)) {
        failure = Error{ErrorCode::kUnavailable, job.full_path + " changed while it was read"};
      } else {
        job.sha256 = to_hex(*digest);
      }
      if (failure) return;
    }
  };
  const unsigned wanted =
      num_threads > 0 ? static_cast<unsigned>(num_threads) : std::thread::hardware_concurrency();
  const std::size_t num = std::min<std::size_t>(std::max(1u, wanted), jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < num; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) return std::move(*failure);
  return ok_status();
}

ModelDigest combine(const std::vector<Job>& jobs) {
  ModelDigest result;
  Sha256 hash;
  for (const Job& job : jobs) {
    hash.update(job.path);
    hash.update(std::string_view("\0", 1));
    hash.update(std::to_string(job.stamp.size));
    hash.update(std::string_view("\0", 1));
    hash.update(job.sha256);
    hash.update("\n");
    result.files.push_back({job.path, job.stamp.size, job.sha256, job.cached.has_value()});
  }
  result.hex = to_hex(hash.finish());
  return result;
}

Result<VerifyResult> run(const std::string& folder, DigestMode mode, const DigestProgress& progress,
                         int num_threads) {
  DigestCache cache;
  FLOTILLA_TRY(std::vector<Job> jobs, list_jobs(folder, cache));
  std::vector<Job*> open;
  for (Job& job : jobs) {
    if (job.cached && mode != DigestMode::kVerify) {
      job.sha256 = *job.cached;
    } else {
      open.push_back(&job);
    }
  }
  if (mode == DigestMode::kCacheOnly && !open.empty()) {
    return Error{ErrorCode::kNotFound, folder + ": no digest known yet"};
  }
  FLOTILLA_TRY_STATUS(hash_jobs(open, progress, num_threads));
  VerifyResult result;
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  for (Job* job : open) {
    if (job->cached && *job->cached != job->sha256) result.damaged.push_back(job->path);
    job->cached.reset();
    if (now - job->stamp.mtime_ns > kSettleNs) cache.put(job->full_path, job->stamp, job->sha256);
  }
  if (const Status saved = cache.save(); !saved.ok()) {
    log::warn("digest_cache_not_saved", {{"reason", saved.error().message}});
  }
  std::sort(result.damaged.begin(), result.damaged.end());
  result.digest = combine(jobs);
  return result;
}

}  // namespace

Result<ModelDigest> model_digest(const std::string& folder, DigestMode mode,
                                 const DigestProgress& progress, int num_threads) {
  FLOTILLA_TRY(VerifyResult result, run(folder, mode, progress, num_threads));
  return std::move(result.digest);
}

Result<VerifyResult> verify_model(const std::string& folder, const DigestProgress& progress,
                                  int num_threads) {
  return run(folder, DigestMode::kVerify, progress, num_threads);
}

}  // namespace flotilla::checkpoint
