#include "flotilla/backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

using tensor::DType;

std::unique_ptr<Backend> make(CpuOptions options) {
  return std::move(make_cpu_backend(options)).value();
}

TEST(CpuBackend, NamesItsTargetAndThreads) {
  const auto backend = make({.num_threads = 2, .target = CpuTarget::kScalar});
  EXPECT_EQ(backend->capabilities().device, "CPU portable, 2 threads");
  EXPECT_EQ(backend->capabilities().num_threads, 2);
  EXPECT_TRUE(backend->capabilities().keeps_bit_contract);
  EXPECT_EQ(make({.num_threads = 1})->capabilities().num_threads, 1);
  EXPECT_GE(make({})->capabilities().num_threads, 1);
}

TEST(CpuBackend, RefusesAbsurdThreadCounts) {
  EXPECT_EQ(make_cpu_backend({.num_threads = -1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_cpu_backend({.num_threads = 5000}).error().code, ErrorCode::kInvalidArgument);
}

TEST(CpuBackend, AcceptsEveryFormatOfTheContract) {
  const auto backend = make({.num_threads = 1});
  for (const MatrixKind& kind : all_matrix_kinds()) {
    const auto matrix = backend->prepare(fixed_matrix(kind, 20, 128, 1));
    ASSERT_TRUE(matrix.ok()) << matrix_kind_name(kind);
    EXPECT_EQ((*matrix)->n(), 20);
    EXPECT_EQ((*matrix)->k(), 128);
    EXPECT_GT((*matrix)->resident_bytes(), 0u);
  }
}

TEST(CpuBackend, RefusesWhatItCannotServeByName) {
  const auto backend = make({.num_threads = 1});
  const MatrixKind affine{WeightFormat::kAffine, 4, 64};
  const auto error_of = [&](auto change) {
    StoredMatrix m = fixed_matrix(affine, 16, 128, 1);
    change(m);
    return backend->prepare(m).error();
  };
  const Error bits = error_of([](StoredMatrix& m) { m.bits = 7; });
  EXPECT_EQ(bits.code, ErrorCode::kUnsupported);
  EXPECT_NE(bits.message.find("affine 7-bit group 64"), std::string::npos) << bits.message;
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.group_size = 96; }).code, ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.n = 17; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.k = 192; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.k = 0; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.k = 100; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.biases = {}; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.scales = {}; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.weight = {}; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      error_of([](StoredMatrix& m) {
        m.biases = fixed_matrix({WeightFormat::kAffine, 4, 64, DType::kF32}, 16, 128, 1).biases;
      }).code,
      ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.format = WeightFormat::kBF16; }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([](StoredMatrix& m) { m.format = WeightFormat::kNvfp4; }).code,
            ErrorCode::kUnsupported);
}

TEST(CpuBackend, PackingLetsGoOfTheStoredWeights) {
  const auto backend = make({.num_threads = 2});
  StoredMatrix stored = fixed_matrix({WeightFormat::kAffine, 4, 64}, 64, 256, 1);
  const std::weak_ptr<tensor::Buffer> buffer = stored.weight.buffer();
  const auto packed = std::move(backend->prepare(stored)).value();
  const std::size_t bytes = stored.weight.num_bytes() + stored.scales.num_bytes() * 2;
  stored = {};
  EXPECT_TRUE(buffer.expired());
  EXPECT_EQ(packed->resident_bytes(), bytes);
}

TEST(CpuBackend, BuffersAreRecycledAndMayOutliveTheBackend) {
  auto backend = make({.num_threads = 1});
  std::byte* first = nullptr;
  {
    const Tensor t = backend->allocate({100, 100}, DType::kF32);
    first = t.bytes();
  }
  const Tensor again = backend->allocate({100, 100}, DType::kF32);
  EXPECT_EQ(again.bytes(), first);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(again.bytes()) % 64, 0u);
  backend.reset();
  again.data<float>()[9999] = 1.0f;
}

TEST(CpuBackend, CudaIsNamedAsMissing) {
#ifndef FLOTILLA_HAS_CUDA
  const auto result = make_cuda_backend(0);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
#endif
}

}  // namespace
}  // namespace flotilla::backend
