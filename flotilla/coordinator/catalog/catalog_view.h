// The catalog in memory: which models there are, in which versions, under which names. A view never
// changes; a change makes a new one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/coordinator/catalog/runtime_parameters.h"
#include "flotilla/download/manifest.h"
#include "flotilla/gates/judge.h"

namespace flotilla::coordinator {

enum class CatalogState : std::uint8_t {
  kPublished,  // may be fetched, is not what the name means
  kActive,     // what the name means; one version of a model at most
  kRetired,    // history
};
std::string_view to_string(CatalogState state);

struct CatalogEntry {
  std::string model;
  std::int64_t version = 0;
  CatalogState state = CatalogState::kPublished;
  std::string digest;  // as nodes compute it
  // A folder of the coordinator's machine, or the URL of one. Files of a URL have their own.
  std::string source;
  std::vector<download::ManifestFile> files;
  std::string family;               // model_type
  std::int64_t context_length = 0;  // 0: not stated
  std::vector<std::string> capabilities;
  std::uint64_t min_memory_bytes = 0;  // 0: not stated
  RuntimeParameters runtime;
  std::int64_t created = 0, changed = 0;  // unix seconds

  std::uint64_t bytes() const;
  bool is_folder() const { return source.starts_with('/'); }
};

// How a node's offer of a model stands to the catalog.
enum class Standing : std::uint8_t {
  kFree,          // the catalog does not have the model, and that is allowed
  kActive,        // the active version
  kOtherVersion,  // other files than the active version's
  kNotServed,     // no version is active, or only models of the catalog are allowed
};

class CatalogView {
 public:
  // `only`: models outside the catalog are not served.
  explicit CatalogView(bool only = false) : only_(only) {}
  CatalogView(bool only, std::vector<CatalogEntry> entries,
              std::map<std::string, std::string> aliases);

  // The model that a client's name means: an alias's, else the name itself.
  const std::string& resolve(const std::string& name) const;
  // What to tell a client who asks for `model` (resolved); ok: it may be asked for.
  Status allows(const std::string& model) const;
  Standing standing(const std::string& model, const std::string& digest) const;
  // The version with these files; of a retired one too. nullptr: none.
  const CatalogEntry* find(const std::string& model, const std::string& digest) const;
  const CatalogEntry* active(const std::string& model) const;
  // The version with this digest that is not retired and whose files are on this machine, of
  // whatever model.
  const CatalogEntry* folder_of(const std::string& digest) const;
  const CatalogEntry* version(const std::string& model, std::int64_t version) const;

  const std::vector<CatalogEntry>& entries() const { return entries_; }  // by model, version
  const std::map<std::string, std::string>& aliases() const { return aliases_; }
  bool only() const { return only_; }
  // Nothing depends on it: every node is as free as without a catalog.
  bool empty() const { return entries_.empty() && !only_; }

 private:
  bool has(const std::string& model) const { return by_model_.contains(model); }

  const bool only_;
  std::vector<CatalogEntry> entries_;
  std::map<std::string, std::vector<std::size_t>> by_model_;
  std::map<std::string, std::string> aliases_;  // to models
};

// What the gates know of a model besides what its node says. A node's word about its size counts
// only where the catalog has none.
void apply(const CatalogEntry& entry, gates::ModelFacts& facts);

}  // namespace flotilla::coordinator
