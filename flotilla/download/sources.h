// Where models come from: a coordinator's catalog, a hub like Hugging Face's, a plain HTTP folder.
#pragma once

#include <string>

#include "flotilla/download/pull.h"

namespace flotilla::download {

inline constexpr const char* kDefaultHub = "https://huggingface.co";

// The active version of `model`, or `version` if that is not 0. Files that the catalog has from a
// hub come from there, with `hub_token` if the hub's origin is that of `hub`.
struct CoordinatorSource {
  std::string url;  // "https://coordinator:8080"
  std::string key;
  std::string model;
  std::int64_t version = 0;
  std::string hub = kDefaultHub;
  std::string hub_token = {};
};
Result<Source> find_source(const CoordinatorSource& from, const FetchOptions& options);

// One commit of a repository, whatever its branch does meanwhile. Only files that make up the model
// are taken; small ones have no sum in the hub's list.
struct HubSource {
  std::string repo;  // "owner/name"
  std::string revision = "main";
  std::string hub = kDefaultHub;
  std::string token = {};
};
Result<Source> find_source(const HubSource& from, const FetchOptions& options);
// "hf:owner/name@revision"
Result<HubSource> parse_hub_name(const std::string& text);

// A folder that some server shows, by its URL. With a manifest (flotilla-manifest.json) in it that
// counts; else the files that a model may have are asked for one by one, and nothing says what
// their sums should be.
struct FolderSource {
  std::string url;
  std::string token = {};
};
Result<Source> find_source(const FolderSource& from, const FetchOptions& options);

// Reads what has no sum yet, without keeping it; then the digest is known.
Status fill_in_sums(Source& source, const FetchOptions& options,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

// Of the names of a repository's files, those that make up the model. `index`: the content of
// model.safetensors.index.json; empty: it has none. For tests.
Result<std::vector<std::string>> choose_files(const std::vector<std::string>& names,
                                              const std::string& index);

}  // namespace flotilla::download
