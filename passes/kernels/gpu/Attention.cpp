#include "passes/kernels/gpu/AttentionEmitter.h"
#include "passes/kernels/spec/Regions.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

bool canBuildGpuAttention(const AttentionSpec &spec, std::string *reason) {
  if (!canBuildAttention(spec, reason))
    return false;
  // A prompt has its keys and values written out once, for matrix units.
  if ((spec.isInBytes(spec.keyOperand) || spec.isInBytes(spec.value)) && !canUseLines(spec))
    return fail(reason, "only few queries read keys and values in bytes");
  if (!canUseThreads(spec))
    return fail(reason, "heads this wide do not fit the shared memory of a GPU");
  return true;
}

int64_t countGpuAttentionSplits(const AttentionSpec &spec) {
  constexpr int64_t kMaxSplits = 16, kFewKeys = 128, kFewQueries = 16;
  std::optional<int64_t> i = spec.getStaticSize(Dim::I), j = spec.getStaticSize(Dim::J);
  if (!i || *i > kFewQueries || spec.hasWeightSweep() || storesTiles(spec))
    return 1;
  int64_t blocks = spec.getStaticSize(Dim::B).value_or(1) * spec.getStaticSize(Dim::H).value_or(1);
  // A launch that merges parts takes as long as a block that reads so much, which lines do at once.
  constexpr int64_t kBlockBytes = 384 * 1024;
  if (j && canUseLines(spec)) {
    int64_t width = *spec.getStaticSize(Dim::D) + *spec.getStaticSize(Dim::E);
    if (*j * width * spec.types[spec.value].getElementTypeBitWidth() / 8 <= kBlockBytes)
      return 1;
  }
  int64_t splits = std::min(kMaxSplits, 2 * kProcessors / std::max<int64_t>(blocks, 1));
  if (j)
    splits = std::min(splits, *j / kFewKeys);
  return std::max<int64_t>(splits, 1);
}

/// What the products are of: buffers of 16 bits as they are, those of f32 as `precision` has it.
static Precision productsOf(const AttentionSpec &spec, Precision precision) {
  if (isF32(spec))
    return precision;
  return spec.types[spec.query].getElementType().isF16() ? Precision::f16 : Precision::bf16;
}

static bool takesWarpgroups(const AttentionSpec &spec, Precision precision, Sm90a sm90a) {
  return sm90a != Sm90a::none && canUseWarpgroups(spec, precision);
}

Value countGpuAttentionScratch(OpBuilder &builder, Location loc, const AttentionSpec &spec,
                               llvm::function_ref<Value(int64_t)> sizeOf, Precision precision, Sm90a sm90a) {
  auto size = [&](int64_t dim) { return Index(builder, loc, sizeOf(dim)); };
  if (takesWarpgroups(spec, productsOf(spec, precision), sm90a))
    return countWarpgroupsScratch(spec, size);
  int64_t splits = countGpuAttentionSplits(spec);
  if (splits == 1)
    return {};
  return size(Dim::B) * size(Dim::H) * size(Dim::I) * (splits * (*spec.getStaticSize(Dim::E) + 2));
}

std::unique_ptr<AttentionEmitter> makeAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec,
                                                Precision precision) {
  if (canUseLines(spec))
    return makeLinesAttention(builder, loc, spec);
  return canUseMatrices(spec, precision) ? makeMatricesAttention(builder, loc, spec, precision)
                                         : makeThreadsAttention(builder, loc, spec);
}

func::FuncOp buildGpuAttention(OpBuilder &builder, Location loc, StringRef symbol, const AttentionSpec &spec,
                               Precision precision, Sm90a sm90a) {
  OpBuilder::InsertionGuard guard(builder);
  precision = productsOf(spec, precision);
  if (takesWarpgroups(spec, precision, sm90a))
    return buildWarpgroupsAttention(builder, loc, symbol, spec, precision, sm90a);
  return makeAttention(builder, loc, spec, precision)->emit(symbol);
}

} // namespace attn
