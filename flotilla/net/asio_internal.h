// What the .cc files of this folder share about Asio. Never included from outside the folder.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <vector>

#include "flotilla/net/io_runtime.h"

namespace flotilla::net {

struct IoRuntime::Impl {
  boost::asio::io_context context;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{
      context.get_executor()};
  std::vector<std::thread> threads;
};

struct Strand::Impl {
  explicit Impl(boost::asio::io_context& context)
      : strand(boost::asio::make_strand(context)), executor(strand) {}
  boost::asio::strand<boost::asio::io_context::executor_type> strand;
  boost::asio::any_io_executor executor;
};

}  // namespace flotilla::net
