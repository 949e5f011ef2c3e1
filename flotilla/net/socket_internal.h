// The definition of ByteStream::Socket, for the .cc files of this folder that accept or connect.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <utility>

#include "flotilla/net/byte_stream.h"

namespace flotilla::net {

struct ByteStream::Socket {
  explicit Socket(boost::asio::ip::tcp::socket s) : socket(std::move(s)) {}
  boost::asio::ip::tcp::socket socket;
};

}  // namespace flotilla::net
