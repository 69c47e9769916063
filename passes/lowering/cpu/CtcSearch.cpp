// attn.ctc_search as calls of its kernels.
#include "dialects/attn/SearchOp.h"
#include "passes/kernels/gpu/Search.h"
#include "passes/lowering/cpu/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

LogicalResult attn::lowerCtcSearch(CtcSearchOp op, KernelTable &kernels, bool forGpu) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Type i64 = b.getI64Type(), f32 = b.getF32Type(), f64 = b.getF64Type();
  CtcKernelSpec spec{static_cast<int64_t>(op.getWidth().value_or(0)), static_cast<int64_t>(op.getNBest()),
                     static_cast<int64_t>(op.getBlank()), op.getTimeMajor(), forGpu};
  auto index = [&](int64_t value) { return arith::ConstantIndexOp::create(b, loc, value).getResult(); };
  auto castTo = [&](Value value, Type type) {
    return value.getType() == type ? value : tensor::CastOp::create(b, loc, type, value).getResult();
  };
  Value scores = castTo(op.getScores(), RankedTensorType::get({kDynamic, kDynamic, kDynamic}, f32));
  Value frames = castTo(op.getFrames(), RankedTensorType::get({kDynamic}, i64));
  auto sizeOf = [&](Value value, int64_t dim) { return tensor::DimOp::create(b, loc, value, dim).getResult(); };
  Value batch = sizeOf(scores, spec.timeMajor ? 1 : 0), time = sizeOf(scores, spec.timeMajor ? 0 : 1);
  auto require = [&](arith::CmpIPredicate predicate, Value a, Value c, StringRef message) {
    RequireOp::create(b, loc, arith::CmpIOp::create(b, loc, predicate, a, c), message, ValueRange{a, c});
  };
  require(arith::CmpIPredicate::eq, batch, sizeOf(frames, 0),
          "ctc search: the scores have {0} items, the numbers of frames are {1}");
  require(arith::CmpIPredicate::sgt, sizeOf(scores, 2), index(spec.blank),
          "ctc search: the scores have {0} labels, the blank is {1}");

  SmallVector<Value> outs;
  auto add = [&](ArrayRef<int64_t> shape, Type element, ValueRange sizes) {
    outs.push_back(tensor::EmptyOp::create(b, loc, RankedTensorType::get(shape, element), sizes));
  };
  add({kDynamic, spec.best, kDynamic}, i64, {batch, time});
  add({kDynamic, spec.best}, i64, batch);
  add({kDynamic, spec.best}, f32, batch);
  add({kDynamic, 2}, i64, batch);
  if (spec.width) {
    Value nodes = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, time, index(spec.width)), index(1));
    add({kDynamic, kDynamic, 4}, i64, {batch, nodes});
    add({kDynamic, 2, spec.width, 2}, i64, batch);
    add({kDynamic, 2, spec.width, 3}, f64, batch);
  }
  auto call = [&](const std::string &symbol, ValueRange ins, ValueRange into,
                  llvm::function_ref<func::FuncOp(OpBuilder &)> build) {
    FailureOr<func::FuncOp> kernel = kernels.getOrBuild(symbol, [&](OpBuilder &at) {
      func::FuncOp function = build(at);
      if (forGpu && function.getOps<gpu::LaunchOp>().empty())
        launchSearchKernel(function, /*threads=*/32, /*perBlock=*/false);
      return FailureOr<func::FuncOp>(function);
    });
    assert(succeeded(kernel) && "a symbol of the model has the name of a kernel");
    return KernelOp::create(b, loc, into.getTypes(), SymbolRefAttr::get(*kernel), ins, into, DenseI64ArrayAttr());
  };
  std::string suffix = "_b" + std::to_string(spec.best);
  std::string symbol = (spec.width ? "ctc_beam_w" + std::to_string(spec.width) : std::string("ctc_greedy")) + suffix +
                       "_" + std::to_string(spec.blank) + (spec.timeMajor ? "_t" : "");
  auto findOnGpu = [&]() -> KernelOp {
    // A search of rows finds the best label of each frame.
    SmallVector<ReassociationIndices> groups{{0, 1}, {2}};
    auto flat = RankedTensorType::get({kDynamic, kDynamic}, f32);
    Value rows = tensor::CollapseShapeOp::create(b, loc, flat, scores, groups);
    Value count = arith::MulIOp::create(b, loc, batch, time);
    auto empty = [&](ArrayRef<int64_t> shape, Type element) -> Value {
      return tensor::EmptyOp::create(b, loc, RankedTensorType::get(shape, element), ValueRange{count});
    };
    SmallVector<Value> each{empty({kDynamic, 1}, f32), empty({kDynamic, 1}, i64), empty({kDynamic}, f32)};
    Value noEnd = arith::ConstantIntOp::create(b, loc, 0, 1);
    auto best = call("ctc_frames", {rows, noEnd}, each,
                     [&](OpBuilder &at) { return buildGpuSearchRows(at, loc, "ctc_frames", SearchKernelSpec()); });
    SmallVector<Value> ins(best.getOutputs());
    ins.push_back(frames);
    return call(symbol, ins, outs, [&](OpBuilder &at) { return buildGpuCtcGreedy(at, loc, symbol, spec); });
  };
  KernelOp found = forGpu && !spec.width ? findOnGpu() : call(symbol, {scores, frames}, outs, [&](OpBuilder &at) {
    return buildCtc(at, symbol, spec);
  });
  std::string counter = "ctc_length" + suffix;
  Value three = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{3}, i64);
  auto counted = call(counter, {found.getOutputs()[1], found.getOutputs()[3]}, three,
                      [&](OpBuilder &at) { return buildCtcLength(at, counter, spec.best); });
  auto number = [&](int64_t place) {
    Value value = tensor::ExtractOp::create(b, loc, counted.getOutputs()[0], index(place));
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), value).getResult();
  };
  auto requireNone = [&](Value first, const Twine &message) {
    Value none = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, first, index(0));
    Value item = arith::SubIOp::create(b, loc, first, index(1));
    RequireOp::create(b, loc, none, b.getStringAttr(message), ValueRange{item, time});
  };
  requireNone(number(2),
              "ctc search: the number of frames of item {0} is less than 0, or more than the {1} of its scores");
  requireNone(number(1), "ctc search: item {0} has a frame with a NaN or +inf, or nothing but -inf");

  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1), best = b.getIndexAttr(spec.best);
  bool isBeam = spec.width;
  auto cut = [&](Value value, SmallVector<OpFoldResult> sizes, RankedTensorType want) {
    SmallVector<OpFoldResult> offsets(sizes.size(), zero), strides(sizes.size(), one);
    SmallVector<int64_t> shape{kDynamic};
    if (isBeam)
      shape.push_back(spec.best);
    if (sizes.size() == 3)
      shape.push_back(kDynamic);
    auto type = RankedTensorType::get(shape, want.getElementType());
    return castTo(tensor::ExtractSliceOp::create(b, loc, type, value, offsets, sizes, strides), want);
  };
  SmallVector<OpFoldResult> items{batch, best}, all{batch, best, number(0)};
  op.getLabels().replaceAllUsesWith(cut(found.getOutputs()[0], all, op.getLabels().getType()));
  op.getLengths().replaceAllUsesWith(cut(found.getOutputs()[1], items, op.getLengths().getType()));
  op.getTotals().replaceAllUsesWith(cut(found.getOutputs()[2], items, op.getTotals().getType()));
  op.erase();
  return success();
}
