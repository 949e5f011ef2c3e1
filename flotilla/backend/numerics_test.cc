#include "flotilla/backend/numerics.h"

#include <gtest/gtest.h>

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
            "520869deaf2e09bf55690540141bba2591c4edcc2800fe06fa3ddc1cab522ee0");
}

TEST(Numerics, StressFindsNoDriftInSoundKernels) {
  const auto backend = make(CpuTarget::kBest, 2, true);
  const StressReport report = op_stress(*backend, 3);
  EXPECT_EQ(report.rounds, 3);
  EXPECT_GT(report.outputs, 100000);
  EXPECT_TRUE(report.drifting.empty());
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
