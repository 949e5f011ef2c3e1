// Makes an outgoing connection: name, addresses one after the other, TLS. Internal to net/.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/net/byte_stream.h"

namespace flotilla::net {

struct ConnectTarget {
  std::string host;
  std::uint16_t port = 0;
  std::shared_ptr<TlsContext> tls;  // null: plain
  std::string key_pin;              // hex; empty: the certificate was checked by `tls`
};

class Connector {
 public:
  using Done = std::function<void(Result<std::shared_ptr<std::unique_ptr<ByteStream>>>)>;
  // `done` runs once on the strand unless cancelled.
  Connector(const Strand& strand, ConnectTarget target, Done done);
  ~Connector();
  void start();   // on the strand
  void cancel();  // on the strand

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::net
