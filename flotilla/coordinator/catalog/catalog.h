// The view that is in force, for whoever asks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "flotilla/coordinator/catalog/catalog_view.h"

namespace flotilla::coordinator {

// Thread-safe.
class Catalog {
 public:
  using View = std::shared_ptr<const CatalogView>;
  // The core strand takes a new view: it calls `then` when routing follows it.
  using Install = std::function<void(View, std::function<void()> then)>;

  explicit Catalog(bool only) : view_(std::make_shared<CatalogView>(only)) {}

  View view() const {
    std::lock_guard lock(mutex_);
    return view_;
  }
  // Before the first set().
  void on_change(Install install) { install_ = std::move(install); }
  // Requests that come after `then` are treated as the view says.
  void set(View view, std::function<void()> then) {
    {
      std::lock_guard lock(mutex_);
      view_ = view;
    }
    if (install_) return install_(std::move(view), std::move(then));
    then();
  }

 private:
  Install install_;
  mutable std::mutex mutex_;
  View view_;  // guarded by mutex_
};

}  // namespace flotilla::coordinator
