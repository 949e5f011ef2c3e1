// A connected TCP socket, plain or under TLS: one type, so that everything above is compiled once.
// Internal to net/.
#pragma once

#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/net/io_runtime.h"
#include "flotilla/net/tls_context.h"

namespace flotilla::net {

// Every member must be called on the strand; handlers run there, never inside the call. At most one
// read and one write may be pending. The memory passed in must live until the handler ran; the
// stream itself may be destroyed earlier, pending operations then end with an error.
class ByteStream {
 public:
  using Handler = std::function<void(boost::system::error_code, std::size_t)>;

  struct Socket;  // holds the Asio socket
  ByteStream(const Strand& strand, std::unique_ptr<Socket> socket, std::shared_ptr<TlsContext> tls,
             bool is_server);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // TLS handshake; completes at once on a plain stream. On the client `host` is what the
  // certificate must name (not checked when the context does not check certificates).
  void handshake(const std::string& host, Handler done);
  // Hex SHA-256 of the peer's public key; empty without TLS.
  std::string peer_key_pin() const;

  void read_some(std::span<char> into, Handler done);
  void write_some(std::string_view data, Handler done);
  // Reads what is there: 0 when nothing is, at the end, after an error, or under TLS; the next
  // read_some tells. No read may be pending.
  std::size_t try_read(std::span<char> into);
  // Writes what the socket takes now and says how much that was: 0 when it is full, broken, or
  // under TLS. No write may be pending.
  std::size_t try_write(std::string_view data);
  // Puts bytes back: the next reads return them first.
  void unread(std::string data);

  // Says that nothing more will be written (FIN; close_notify under TLS). Reading goes on.
  void shutdown_write();
  void close();  // FIN; pending operations end with an error
  void reset();  // RST: the peer sees a broken connection, data still queued is lost
  bool is_open() const;
  // True once the peer has sent FIN or RST, even while unread data is queued before it.
  bool peer_closed() const;

  const Strand& strand() const;
  const std::string& peer() const;  // "127.0.0.1:5555"
  bool secure() const;
  // Since the start; tell progress from standstill.
  std::uint64_t bytes_read() const;
  std::uint64_t bytes_written() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::net
