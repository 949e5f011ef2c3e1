#include "flotilla/coordinator/money/recovery.h"

#include <algorithm>

#include "flotilla/base/text.h"
#include "flotilla/coordinator/money/bank_till.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxParts = 64;  // of one job

bool was_given(const OpenJob& job, const ProviderId& node) {
  return std::find(job.nodes.begin(), job.nodes.end(), node) != job.nodes.end();
}

}  // namespace

Recovery::Recovery(Bank& bank, const Clock& clock, std::chrono::seconds patience)
    : bank_(bank), clock_(clock), deadline_(clock.now() + patience) {
  for (OpenJob& job : bank.take_open_jobs()) {
    Open open;
    open.job = std::move(job);
    if (open.job.streamed && open.job.delivered > 0) {
      jobs_.emplace(open.job.order.job, std::move(open));
    } else {
      settle(open);
    }
  }
}

std::vector<protocol::Recall> Recovery::questions(const ProviderId& node) const {
  std::vector<protocol::Recall> out;
  for (const auto& [id, open] : jobs_) {
    if (!was_given(open.job, node)) continue;
    if (out.empty() || out.back().jobs.size() == protocol::Recall::kMaxJobs) out.emplace_back();
    out.back().jobs.push_back(protocol::to_hex(id));
  }
  return out;
}

void Recovery::on_report(const ProviderId& node, const protocol::Recalled& report) {
  for (const protocol::AttemptEnd& end : report.ends) {
    JobId id;
    const auto bytes = from_hex(end.job);
    if (!bytes || bytes->size() != id.bytes.size()) continue;
    std::copy(bytes->begin(), bytes->end(), id.bytes.begin());
    const auto at = jobs_.find(id);
    if (at == jobs_.end()) continue;
    Open& open = at->second;
    if (!was_given(open.job, node) || end.end_token < end.first_token ||
        end.end_token > kMaxJobTokens) {
      log::warn("recall_not_believed", {{"node", node.value},
                                        {"job", end.job},
                                        {"given", was_given(open.job, node)},
                                        {"first_token", end.first_token},
                                        {"end_token", end.end_token}});
      continue;
    }
    const Open::Part part{node, end.attempt, end.first_token, end.end_token};
    const auto same = std::find_if(open.parts.begin(), open.parts.end(), [&](const auto& known) {
      return known.node == node && known.attempt == end.attempt;
    });
    if (same == open.parts.end()) {
      if (open.parts.size() >= kMaxParts) continue;
      open.parts.push_back(part);
    } else {
      *same = part;  // it has registered again and was asked again
    }
    if (!end.finished) continue;
    open.finished = true;
    settle(open);
    jobs_.erase(at);
  }
}

void Recovery::tick() {
  if (jobs_.empty() || clock_.now() < deadline_) return;
  for (auto& [id, open] : jobs_) settle(open);
  jobs_.clear();
}

void Recovery::settle(Open& open) {
  SettleOrder order = std::move(open.job.order);
  const auto delivered = static_cast<std::uint64_t>(std::max<std::int64_t>(0, open.job.delivered));
  std::vector<std::pair<ProviderId, std::uint64_t>> served;
  std::uint64_t end = 0;
  for (const Open::Part& part : open.parts) {
    const std::uint64_t last = std::min(part.end, delivered);
    if (last > part.first) served.emplace_back(part.node, last - part.first);
    end = std::max(end, last);
  }
  // The prompt as it was held: 0 where another choice pays for it.
  order.tokens.cached = std::clamp<std::int64_t>(order.tokens.cached, 0, order.tokens.prompt);
  order.tokens.output = static_cast<std::int64_t>(end);
  order.refund = !open.job.streamed || end == 0;
  order.served = owners_of(*bank_.view(), served);
  order.outcome = "recovered";
  log::info("job_recovered", {{"job", protocol::to_hex(order.job)},
                              {"finished", open.finished},
                              {"refunded", order.refund},
                              {"nodes", open.parts.size()},
                              {"tokens", order.tokens.output}});
  bank_.settle(std::move(order));
}

}  // namespace flotilla::coordinator
