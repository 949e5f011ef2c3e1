#include "flotilla/backend/numerics.h"

#include <gtest/gtest.h>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

std::unique_ptr<Backend> make(CpuTarget target, int threads, bool pack) {
  auto made = make_cpu_backend({.num_threads = threads, .target = target, .pack_weights = pack});
  return made.ok() ? std::move(made).value() : nullptr;
}

TEST(Numerics, IdIsEqualOnEveryTargetAndThreadCount) {
  const std::string expected = numerics_id(*make(CpuTarget::kScalar, 1, false));
  EXPECT_EQ(expected.size(), 64u);
  for (const CpuTarget target : {CpuTarget::kScalar, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    for (const int threads : {1, 2, 3}) {
      const auto backend = make(target, threads, threads != 2);
      if (backend == nullptr) continue;
      EXPECT_EQ(numerics_id(*backend), expected) << backend->capabilities().device;
    }
  }
}

TEST(Numerics, IdIsTheOneOfThisKernelVersion) {
  // A change here changes who may continue whose answers in a fleet: raise kKernelAbiVersion with
  // it.
  EXPECT_EQ(numerics_id(*make(CpuTarget::kBest, 2, true)),
            "3b0a4b85bdfdda18f4dc6b4338dc73f492090f1010f38943ac5df9cde199a8fc");
}

TEST(Numerics, StressFindsNoDriftInSoundKernels) {
  const auto backend = make(CpuTarget::kBest, 2, true);
  const StressReport report = op_stress(*backend, 3);
  EXPECT_EQ(report.rounds, 3);
  EXPECT_GT(report.outputs, 100000);
  EXPECT_TRUE(report.ok());
}

TEST(Numerics, StressFindsRowsThatDependOnOthers) {
  auto made = make_cpu_backend({.num_threads = 1, .test_split_k_rows = 3});
  ASSERT_TRUE(made.ok());
  const StressReport report = op_stress(**made, 1);
  EXPECT_TRUE(report.drifting.empty());
  // Every format of weights, and nothing else.
  EXPECT_EQ(report.row_dependent.size(), all_matrix_kinds().size());
  for (const std::string& name : report.row_dependent) EXPECT_TRUE(name.starts_with("linear "));
}

TEST(Numerics, TheCheckOfANodeGivesTheIdAndRefusesABrokenKernel) {
  const auto good = check_numerics({.num_threads = 2}, 1);
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(*good, numerics_id(*make(CpuTarget::kBest, 1, true)));
  const auto broken = check_numerics({.num_threads = 2, .test_split_k_rows = 3}, 1);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kModelFault);
  EXPECT_NE(broken.error().message.find("linear"), std::string::npos) << broken.error().message;
}

// Hands out wrong bits now and then.
class DriftingBackend final : public Backend {
 public:
  explicit DriftingBackend(Backend& inner) : inner_(inner) {}
  Capabilities capabilities() const override { return inner_.capabilities(); }
  Tensor allocate(const Shape& shape, tensor::DType dtype) override {
    return inner_.allocate(shape, dtype);
  }
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override {
    return inner_.prepare(stored);
  }
  void embedding(const EmbeddingArgs& args) override { inner_.embedding(args); }
  void linear(const LinearArgs& args) override { inner_.linear(args); }
  void linear_group(const LinearGroupArgs& args) override { inner_.linear_group(args); }
  void rms_norm(const RmsNormArgs& args) override { inner_.rms_norm(args); }
  void norm_add(const NormAddArgs& args) override { inner_.norm_add(args); }
  void rope(const RopeArgs& args) override { inner_.rope(args); }
  void gelu_mul(const GeluMulArgs& args) override {
    inner_.gelu_mul(args);
    if (++calls_ == 3) args.out.data<std::uint32_t>()[7] ^= 1u;
  }
  void softcap(const SoftcapArgs& args) override { inner_.softcap(args); }
  void kv_append(const KvAppendArgs& args) override { inner_.kv_append(args); }
  void attention(const AttentionArgs& args) override { inner_.attention(args); }

 private:
  Backend& inner_;
  int calls_ = 0;
};

TEST(Numerics, StressNamesTheOperationThatDrifts) {
  const auto backend = make(CpuTarget::kBest, 1, true);
  DriftingBackend drifting(*backend);
  EXPECT_EQ(op_stress(drifting, 4).drifting, std::vector<std::string>{"gelu_mul"});
}

}  // namespace
}  // namespace flotilla::backend
