// That one process uses a database as its own: no second server begins to work on the same rows.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "flotilla/base/result.h"

namespace flotilla::store {

// Held until it is destroyed or its process dies. Of a file: a lock on PATH.lock, which stays
// behind. Of a PostgreSQL server: an advisory lock of a session of its own. One thread at a time.
class Claim {
 public:
  // `who` is what others are told: one line, 60 bytes at most. kUnavailable naming the holder when
  // another one holds it for all of `patience`. ":memory:" is always free.
  static Result<Claim> take(const std::string& path, const std::string& who,
                            std::chrono::milliseconds patience);
  ~Claim();
  Claim(Claim&&) noexcept;
  Claim& operator=(Claim&&) noexcept;

  // Takes it again where the connection that held it was lost. kAlreadyExists when another one was
  // quicker, kUnavailable when the server does not answer.
  Status keep();

 private:
  struct Impl;
  explicit Claim(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::store
