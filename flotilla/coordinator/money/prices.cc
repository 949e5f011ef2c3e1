#include "flotilla/coordinator/money/prices.h"

#include "flotilla/base/text.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::coordinator {

PriceBook::PriceBook(const std::vector<PriceRow>& rows) {
  for (const PriceRow& row : rows) {
    by_id_[row.id] = row;
    by_model_[row.model].push_back(row.id);
  }
}

const PriceRow* PriceBook::by_id(std::int64_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &at->second;
}

const PriceRow* PriceBook::in_force(const std::string& model, std::int64_t now) const {
  for (const std::string& name : {model, std::string(kEveryModel)}) {
    const auto rows = by_model_.find(name);
    if (rows == by_model_.end()) continue;
    for (auto id = rows->second.rbegin(); id != rows->second.rend(); ++id) {
      const PriceRow& row = by_id_.at(*id);
      if (row.since <= now) return &row;
    }
  }
  return nullptr;
}

Result<PriceRow> set_price(store::Database& database, const std::string& model, const Price& price,
                           std::int64_t since, std::int64_t now) {
  FLOTILLA_TRY_STATUS(check_price(price));
  if (model.empty() || model.size() > 256 || !is_valid_utf8(model)) {
    return Error{ErrorCode::kInvalidArgument, "a model's name has 1 to 256 bytes", "model"};
  }
  if (since < now) {
    return Error{ErrorCode::kInvalidArgument,
                 "a price cannot hold from a time that has passed; jobs were priced by the old one",
                 "since"};
  }
  PriceRow row{0, model, price, since};
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto last, database.query("SELECT MAX(id) FROM prices"));
    row.id = last.at(0).integer(0) + 1;
    auto made = database.execute(
        "INSERT INTO prices (id, model, input, cached_input, output, since, created) "
        "VALUES (:p1, :p2, :p3, :p4, :p5, :p6, :p7)",
        {row.id, model, price.input, price.cached_input, price.output, since, now});
    if (!made.ok()) return std::move(made).error();
    return note_change(database);
  }));
  return row;
}

Result<std::vector<PriceRow>> list_prices(store::Database& database) {
  // Of two that hold from the same second the later one counts.
  FLOTILLA_TRY(const auto rows,
               database.query("SELECT id, model, input, cached_input, output, since FROM prices "
                              "ORDER BY model, since, id"));
  std::vector<PriceRow> out;
  for (const store::Row& row : rows) {
    out.push_back({row.integer(0),
                   row.text(1),
                   {row.integer(2), row.integer(3), row.integer(4)},
                   row.integer(5)});
  }
  return out;
}

}  // namespace flotilla::coordinator
