// A server of files with faults, for tests.
#pragma once

#include <gtest/gtest.h>
#include <atomic>
#include <functional>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "flotilla/net/http.h"

namespace flotilla::download {

class TestServer {
 public:
  struct Page {
    std::string body;
    std::string etag;
    bool ranges = true;
    std::string next = {};  // in a Link header
  };
  // What to do with the n-th request (from 0) of a path, in place of what is right; nullptr or
  // false: that.
  using Fault = std::function<bool(const net::HttpRequest&, int n, net::HttpExchange&)>;

  TestServer()
      : server_(
            io_, {}, [this](auto exchange) { answer(std::move(exchange)); },
            [](unsigned status, std::string_view) {
              net::HttpResponse out;
              out.status = status;
              return out;
            }) {
    EXPECT_TRUE(server_.start().ok());
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

  void put(const std::string& path, std::string body, std::string etag = "") {
    std::lock_guard lock(mutex_);
    pages_[path] = {std::move(body), std::move(etag)};
  }
  Page& page(const std::string& path) { return pages_.at(path); }
  void on(Fault fault) { fault_ = std::move(fault); }
  int num_requests(const std::string& path) {
    std::lock_guard lock(mutex_);
    return counts_[path];
  }
  std::vector<net::HttpRequest> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void answer(std::shared_ptr<net::HttpExchange> exchange) {
    const net::HttpRequest& request = exchange->request();
    Page page;
    int n = 0;
    bool found = false;
    {
      std::lock_guard lock(mutex_);
      n = counts_[request.path]++;
      requests_.push_back(request);
      if (const auto at = pages_.find(request.path); at != pages_.end()) {
        page = at->second;
        found = true;
      }
    }
    if (fault_ && fault_(request, n, *exchange)) return;
    net::HttpResponse out;
    if (!found) {
      out.status = 404;
      return exchange->send(out);
    }
    if (!page.etag.empty()) out.headers.add("ETag", page.etag);
    if (!page.next.empty()) out.headers.add("Link", "<" + page.next + ">; rel=\"next\"");
    const auto range = request.headers.find("Range");
    const auto only_if = request.headers.find("If-Range");
    const bool whole = !range || !page.ranges || (only_if && *only_if != page.etag);
    out.body = page.body;
    if (!whole) {
      const std::size_t from = std::stoul(std::string(range->substr(6)));
      if (from >= page.body.size()) {
        out.status = 416;
        out.body.clear();
        return exchange->send(out);
      }
      out.status = 206;
      out.headers.add("Content-Range", "bytes " + std::to_string(from) + "-" +
                                           std::to_string(page.body.size() - 1) + "/" +
                                           std::to_string(page.body.size()));
      out.body = page.body.substr(from);
    }
    exchange->send(out);
  }

  net::IoRuntime io_{2};
  std::mutex mutex_;
  std::map<std::string, Page> pages_;       // guarded by mutex_
  std::map<std::string, int> counts_;       // guarded by mutex_
  std::vector<net::HttpRequest> requests_;  // guarded by mutex_
  Fault fault_;
  net::HttpServer server_;
};

}  // namespace flotilla::download
