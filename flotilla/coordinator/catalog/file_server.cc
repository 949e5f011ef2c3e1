#include "flotilla/coordinator/catalog/file_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "flotilla/log/log.h"
#include "flotilla/serving/replies.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kPiece = 256u << 10;

class File {
 public:
  explicit File(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  // -1: no regular file.
  std::int64_t size() const {
    struct stat info {};
    if (fd_ < 0 || ::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
    return info.st_size;
  }

 private:
  const int fd_;
};

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

}  // namespace

Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size) {
  const std::optional<ByteRange> whole;
  constexpr std::string_view kUnit = "bytes=";
  if (!header || !header->starts_with(kUnit)) return whole;
  const std::string_view range = header->substr(kUnit.size());
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos || range.find(',') != std::string_view::npos) return whole;
  const auto first = number(range.substr(0, dash)), last = number(range.substr(dash + 1));
  const Error beyond{ErrorCode::kInvalidArgument,
                     "the range begins beyond the file's " + std::to_string(size) + " bytes"};
  if (dash == 0) {  // the last so many bytes
    if (!last) return whole;
    if (*last == 0 || size == 0) return beyond;
    return std::optional(ByteRange{size - std::min(*last, size), size - 1});
  }
  if (!first || (!last && dash + 1 < range.size()) || (last && *last < *first)) return whole;
  if (*first >= size) return beyond;
  return std::optional(ByteRange{*first, std::min(last.value_or(size - 1), size - 1)});
}

struct FileServer::Impl : std::enable_shared_from_this<Impl> {
  struct Transfer {
    Transfer(Impl& of, const std::string& path) : file(path), impl(of.shared_from_this()) {
      ++impl->num_transfers;
    }
    ~Transfer() { --impl->num_transfers; }
    File file;
    std::shared_ptr<net::HttpExchange> exchange;
    std::uint64_t at = 0, left = 0;
    std::shared_ptr<Impl> impl;
  };

  void run();
  void push(std::shared_ptr<Transfer> transfer) {
    {
      std::lock_guard lock(mutex);
      if (stopping) return;
      ready.push_back(std::move(transfer));
    }
    wake.notify_one();
  }
  // False: it waits for its reader, or is over.
  static bool send_piece(Transfer& transfer);

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::shared_ptr<Transfer>> ready;  // guarded by mutex
  bool stopping = false;                        // guarded by mutex
  std::atomic<std::size_t> num_transfers{0};
  std::vector<std::thread> threads;
};

bool FileServer::Impl::send_piece(Transfer& transfer) {
  if (!transfer.exchange->alive()) return false;
  std::string piece(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, transfer.left)), '\0');
  std::size_t filled = 0;
  while (filled < piece.size()) {
    const ssize_t n = ::pread(transfer.file.fd(), piece.data() + filled, piece.size() - filled,
                              static_cast<off_t>(transfer.at + filled));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {  // a length was promised: the client must see that it is not kept
      log::warn("model_file_unreadable", {{"error", n < 0 ? errno : 0}});
      transfer.exchange->abort();
      return false;
    }
    filled += static_cast<std::size_t>(n);
  }
  transfer.at += filled;
  transfer.left -= filled;
  const bool last = transfer.left == 0;
  // After a refusal another thread may go on with it at once: it is not looked at again.
  const std::shared_ptr<net::HttpExchange> exchange = transfer.exchange;
  const bool has_room = exchange->write(std::move(piece));
  if (last) exchange->end();
  return has_room && !last;
}

void FileServer::Impl::run() {
  while (true) {
    std::shared_ptr<Transfer> transfer;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [this] { return stopping || !ready.empty(); });
      if (stopping) return;
      transfer = std::move(ready.front());
      ready.pop_front();
    }
    if (send_piece(*transfer)) push(std::move(transfer));
  }
}

FileServer::FileServer(int num_threads) : impl_(std::make_shared<Impl>()) {
  for (int i = 0; i < num_threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
}

FileServer::~FileServer() {
  std::deque<std::shared_ptr<Impl::Transfer>> left;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    left.swap(impl_->ready);
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
  for (const auto& transfer : left) transfer->exchange->abort();
}

std::size_t FileServer::num_transfers() const { return impl_->num_transfers; }

void FileServer::serve(const ServedFile& file, const std::shared_ptr<net::HttpExchange>& exchange,
                       const serving::ExtraRoute::Reply& reply,
                       const serving::ExtraRoute::Reply& begin) {
  if (impl_->num_transfers >= kMaxTransfers) {
    Error busy{ErrorCode::kUnavailable,
               std::to_string(kMaxTransfers) + " downloads are under way; try again"};
    busy.retry_after_s = 10;
    return reply(serving::error_reply(busy));
  }
  auto transfer = std::make_shared<Impl::Transfer>(*impl_, file.path);
  if (transfer->file.size() != static_cast<std::int64_t>(file.size)) {
    log::error("model_file_changed", {{"path", file.path}, {"published_bytes", file.size}});
    return reply(serving::error_reply(
        {ErrorCode::kUnavailable, "the file is not there as it was published"}));
  }
  const net::HttpRequest& request = exchange->request();
  // The range is of another file's bytes: all of this one.
  const auto only_if = request.headers.find("If-Range");
  const bool whole = only_if && *only_if != file.etag;
  const auto range = parse_range(whole ? std::nullopt : request.headers.find("Range"), file.size);
  net::HttpResponse head;
  head.headers.add("Content-Type", "application/octet-stream");
  head.headers.add("Accept-Ranges", "bytes");
  head.headers.add("ETag", file.etag);
  if (!range.ok()) {
    net::HttpResponse refusal = serving::error_reply(range.error());
    refusal.status = 416;
    refusal.headers.add("Content-Range", "bytes */" + std::to_string(file.size));
    return reply(std::move(refusal));
  }
  transfer->at = *range ? (*range)->first : 0;
  transfer->left = *range ? (*range)->last - (*range)->first + 1 : file.size;
  if (*range) {
    head.status = 206;
    head.headers.add("Content-Range", "bytes " + std::to_string((*range)->first) + "-" +
                                          std::to_string((*range)->last) + "/" +
                                          std::to_string(file.size));
  }
  head.headers.add("Content-Length", std::to_string(transfer->left));
  transfer->exchange = exchange;
  if (request.method == "HEAD" || transfer->left == 0) {
    begin(std::move(head));
    return exchange->end();
  }
  // Until the answer is complete the connection holds the callbacks, and they the transfer.
  exchange->set_callbacks([] {}, [transfer] { transfer->impl->push(transfer); });
  begin(std::move(head));
  impl_->push(std::move(transfer));
}

}  // namespace flotilla::coordinator
