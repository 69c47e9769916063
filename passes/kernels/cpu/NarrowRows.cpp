#include "passes/kernels/cpu/NarrowRows.h"

#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;

namespace attn {

bool canBuildCpuNarrowRows(const NarrowRowsSpec &spec, std::string *reason) {
  if (spec.isFloat8)
    return fail(reason, "only rows of integers have a kernel");
  return canBuildNarrowRows(spec, reason);
}

func::FuncOp buildNarrowRows(OpBuilder &builder, Location loc, const NarrowRowsSpec &spec) {
  assert(canBuildCpuNarrowRows(spec));
  KernelFunction f(builder, loc, spec.symbol());
  Code &k = f.k;
  Buffer input = f.buffer(spec.type), output = f.buffer(spec.resultType());
  int64_t rank = spec.type.getRank(), width = spec.type.getDimSize(rank - 1), lanes = spec.lanes;
  int64_t whole = width / lanes * lanes;
  Type f32 = k.b.getF32Type(), i8 = k.b.getI8Type();
  k.parallel(input.count(0, rank - 1), [&](Index row) {
    Buffer from = input.flat(), to = output.flat();
    Index source = row * width, target = row * (width + kScaleBytes);
    // Lanes beyond the row are 0.
    Index rest = k.index(width - whole);
    auto last = [&] { return convert(from.first(rest, lanes, source + whole), f32); };
    auto load = [&](Index at) { return convert(from.vector(lanes, source + at), f32); };
    Vec tops = k.loop(0, whole, lanes, k.splat(k.f32(0), lanes),
                      [&](Index at, Vec tops) { return maximum(abs(load(at)), tops); });
    if (whole < width)
      tops = maximum(abs(last()), tops);
    Num top = maximumOfLanes(tops);
    Num factor = select(top < kLeastOfRow, k.f32(0), kGreatestCode / top);
    auto codes = [&](const Vec &x) {
      Vec code = atMost(atLeast(roundEven(x * factor), k.splat(k.f32(-kGreatestCode), lanes)),
                        k.splat(k.f32(kGreatestCode), lanes));
      return convert(convert(code, k.b.getI32Type()), i8);
    };
    k.loop(0, whole, lanes, [&](Index at) { to.setVector(codes(load(at)), target + at); });
    if (whole < width)
      to.setFirst(codes(last()), rest, target + whole);
    Num scale = bitcast(top / kGreatestCode, k.b.getI32Type());
    for (int64_t n = 0; n < kScaleBytes; ++n)
      to.set(convert(scale >> 8 * n, i8), target + width + n);
  });
  return f.function;
}

} // namespace attn
