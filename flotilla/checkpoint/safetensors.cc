#include "flotilla/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
namespace {

constexpr std::size_t kMaxHeaderDepth = 8;

Error damaged(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kDataLoss, file + ": " + what};
}
Error damaged(const std::string& file, std::string_view tensor, const std::string& what) {
  return Error{ErrorCode::kDataLoss, file + ": tensor '" + std::string(tensor) + "': " + what};
}

// Finds the first key that the outermost object has twice. Runs only when the parser refused the
// header.
class DuplicateKeyFinder {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using ec = boost::system::error_code;
  std::optional<std::string> duplicate;

  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }
  bool on_object_begin(ec&) {
    ++depth_;
    return true;
  }
  bool on_object_end(std::size_t, ec&) {
    --depth_;
    return true;
  }
  bool on_array_begin(ec&) { return true; }
  bool on_array_end(std::size_t, ec&) { return true; }
  bool on_key_part(bj::string_view part, std::size_t, ec&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(bj::string_view part, std::size_t, ec&) {
    key_.append(part.data(), part.size());
    if (depth_ == 1 && !duplicate && !seen_.insert(key_).second) duplicate = key_;
    key_.clear();
    return true;
  }
  bool on_string_part(bj::string_view, std::size_t, ec&) { return true; }
  bool on_string(bj::string_view, std::size_t, ec&) { return true; }
  bool on_number_part(bj::string_view, ec&) { return true; }
  bool on_int64(std::int64_t, bj::string_view, ec&) { return true; }
  bool on_uint64(std::uint64_t, bj::string_view, ec&) { return true; }
  bool on_double(double, bj::string_view, ec&) { return true; }
  bool on_bool(bool, ec&) { return true; }
  bool on_null(ec&) { return true; }
  bool on_comment_part(bj::string_view, ec&) { return true; }
  bool on_comment(bj::string_view, ec&) { return true; }

 private:
  int depth_ = 0;
  std::string key_;
  std::set<std::string> seen_;
};

std::optional<std::string> find_duplicate_key(std::string_view text) {
  bj::parse_options options;
  options.max_depth = kMaxHeaderDepth;
  bj::basic_parser<DuplicateKeyFinder> parser(options);
  boost::system::error_code ec;
  parser.write_some(false, text.data(), text.size(), ec);
  return parser.handler().duplicate;
}

// Sizes and offsets: exact non-negative integers only.
std::optional<std::uint64_t> as_size(const bj::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0)
    return static_cast<std::uint64_t>(value.get_int64());
  return std::nullopt;
}

Result<tensor::Shape> read_shape(const bj::value& spec, const std::string& file,
                                 std::string_view name) {
  const bj::value* value = json::find(spec, "shape");
  if (value == nullptr || !value->is_array())
    return damaged(file, name, "'shape' is missing or no list");
  const bj::array& list = value->get_array();
  if (list.size() > tensor::Shape::kMaxRank) {
    return Error{ErrorCode::kUnsupported,
                 file + ": tensor '" + std::string(name) + "' has " + std::to_string(list.size()) +
                     " dimensions, more than " + std::to_string(tensor::Shape::kMaxRank)};
  }
  std::array<std::int64_t, tensor::Shape::kMaxRank> dims{};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<std::uint64_t> dim = as_size(list[i]);
    if (!dim || *dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return damaged(file, name, "a dimension of 'shape' is no size");
    }
    dims[i] = static_cast<std::int64_t>(*dim);
  }
  // The product is checked before Shape is made, whose users multiply without a check.
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dims[i]), &elements) ||
        elements > (std::uint64_t{1} << 60)) {
      return damaged(file, name, "'shape' has too many elements");
    }
  }
  return tensor::Shape(std::span<const std::int64_t>(dims.data(), list.size()));
}

Result<TensorEntry> read_entry(std::string_view name, const bj::value& spec,
                               std::uint64_t data_start, std::uint64_t data_bytes,
                               const std::string& file) {
  TensorEntry entry;
  entry.name = std::string(name);
  if (!spec.is_object()) return damaged(file, name, "its header entry is no object");

  const bj::value* dtype = json::find(spec, "dtype");
  if (dtype == nullptr || !dtype->is_string())
    return damaged(file, name, "'dtype' is missing or no text");
  const std::string_view dtype_text(dtype->get_string().data(), dtype->get_string().size());
  const std::optional<tensor::DType> known = tensor::dtype_from_name(dtype_text);
  if (!known) {
    return Error{ErrorCode::kUnsupported, file + ": tensor '" + entry.name +
                                              "' has the unknown dtype '" +
                                              std::string(dtype_text.substr(0, 32)) + "'"};
  }
  entry.dtype = *known;
  FLOTILLA_TRY(entry.shape, read_shape(spec, file, name));

  const bj::value* offsets = json::find(spec, "data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return damaged(file, name, "'data_offsets' is missing or not a pair");
  }
  const std::optional<std::uint64_t> begin = as_size(offsets->get_array()[0]);
  const std::optional<std::uint64_t> end = as_size(offsets->get_array()[1]);
  if (!begin || !end) return damaged(file, name, "'data_offsets' are no sizes");
  const std::string range = "[" + std::to_string(*begin) + ", " + std::to_string(*end) + ")";
  if (*begin > *end) return damaged(file, name, "data_offsets " + range + " are reversed");
  if (*end > data_bytes) {
    return damaged(file, name,
                   "data_offsets " + range + " reach beyond the file, which has " +
                       std::to_string(data_bytes) + " bytes of data");
  }
  entry.offset = data_start + *begin;
  entry.bytes = *end - *begin;
  const std::uint64_t needed =
      static_cast<std::uint64_t>(entry.shape.num_elements()) * tensor::dtype_bytes(entry.dtype);
  if (needed != entry.bytes) {
    return damaged(file, name,
                   "data_offsets hold " + std::to_string(entry.bytes) + " bytes, but " +
                       std::string(tensor::dtype_name(entry.dtype)) + " " +
                       entry.shape.to_string() + " needs " + std::to_string(needed));
  }
  return entry;
}

Status read_metadata(const bj::value& value, const std::string& file,
                     std::map<std::string, std::string>& out) {
  if (!value.is_object()) return damaged(file, "'__metadata__' is no object");
  for (const auto& member : value.get_object()) {
    if (!member.value().is_string()) {
      return damaged(file, "'__metadata__." + std::string(member.key()) + "' is no text");
    }
    const bj::string& text = member.value().get_string();
    out.emplace(std::string(member.key()), std::string(text.data(), text.size()));
  }
  return ok_status();
}

// The tensors, sorted by offset, must fill the data exactly.
Status check_coverage(const std::vector<TensorEntry>& sorted, std::uint64_t data_start,
                      std::uint64_t file_size, const std::string& file) {
  std::uint64_t position = data_start;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : sorted) {
    if (entry.offset < position) {
      return damaged(file, entry.name, "its data overlap those of '" + previous->name + "'");
    }
    if (entry.offset > position) {
      return damaged(
          file, entry.name,
          std::to_string(entry.offset - position) + " bytes before it belong to no tensor");
    }
    position = entry.offset + entry.bytes;
    previous = &entry;
  }
  if (position != file_size) {
    return damaged(file,
                   std::to_string(file_size - position) + " bytes at the end belong to no tensor");
  }
  return ok_status();
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   std::uint64_t file_size,
                                                   const std::string& file) {
  if (file_size < 8 || head.size() < 8) {
    return damaged(
        file, "only " + std::to_string(file_size) + " bytes, too short for a safetensors file");
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 8; i-- > 0;)
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(head[i]);
  if (header_bytes > kMaxHeaderBytes) {
    return damaged(file, "header length " + std::to_string(header_bytes) +
                             " exceeds the limit of " + std::to_string(kMaxHeaderBytes) + " bytes");
  }
  if (header_bytes > file_size - 8 || header_bytes > head.size() - 8) {
    return damaged(file, "header length " + std::to_string(header_bytes) + " exceeds the file of " +
                             std::to_string(file_size) + " bytes (truncated?)");
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, header_bytes);
  auto parsed = json::parse(text, {.max_bytes = kMaxHeaderBytes, .max_depth = kMaxHeaderDepth});
  if (!parsed.ok()) {
    if (const std::optional<std::string> name = find_duplicate_key(text)) {
      return damaged(file, *name, "occurs twice in the header");
    }
    return damaged(file, "header: " + parsed.error().message);
  }
  if (!parsed->is_object()) return damaged(file, "header is no JSON object");

  SafetensorsHeader header;
  const std::uint64_t data_start = 8 + header_bytes;
  header.tensors.reserve(parsed->get_object().size());
  for (const auto& member : parsed->get_object()) {
    const std::string_view name(member.key().data(), member.key().size());
    if (name == "__metadata__") {
      FLOTILLA_TRY_STATUS(read_metadata(member.value(), file, header.metadata));
      continue;
    }
    FLOTILLA_TRY(TensorEntry entry,
                 read_entry(name, member.value(), data_start, file_size - data_start, file));
    header.tensors.push_back(std::move(entry));
  }
  // Empty tensors sort before the tensor that starts where they are.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  FLOTILLA_TRY_STATUS(check_coverage(header.tensors, data_start, file_size, file));
  return header;
}

}  // namespace flotilla::checkpoint
