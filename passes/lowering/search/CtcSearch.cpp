// attn.ctc_search as calls of its kernels.
#include "dialects/attn/SearchOp.h"
#include "passes/lowering/search/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

namespace {
/// One attn.ctc_search as calls of kernels.
class CtcLowering {
public:
  CtcLowering(CtcSearchOp op, KernelTable &kernels, const SearchKernels &target)
      : op(op), kernels(kernels), target(target), b(op), loc(op.getLoc()), i64(b.getI64Type()), f32(b.getF32Type()),
        spec{static_cast<int64_t>(op.getWidth().value_or(0)), static_cast<int64_t>(op.getNBest()),
             static_cast<int64_t>(op.getBlank()), op.getTimeMajor()},
        suffix("_b" + std::to_string(spec.best)) {}

  void run() {
    takeOperands();
    KernelOp found = find();
    Value longest = check(found);
    replace(found, longest);
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value sizeOf(Value value, int64_t dim) { return tensor::DimOp::create(b, loc, value, dim); }
  Value castTo(Value value, Type type) {
    return value.getType() == type ? value : tensor::CastOp::create(b, loc, type, value).getResult();
  }
  Value empty(ArrayRef<int64_t> shape, Type element, ValueRange sizes) {
    return tensor::EmptyOp::create(b, loc, RankedTensorType::get(shape, element), sizes);
  }
  void require(arith::CmpIPredicate predicate, Value a, Value c, StringRef message) {
    RequireOp::create(b, loc, arith::CmpIOp::create(b, loc, predicate, a, c), message, ValueRange{a, c});
  }
  KernelOp call(const std::string &symbol, ValueRange ins, ValueRange into,
                llvm::function_ref<func::FuncOp(OpBuilder &)> build);

  void takeOperands();
  SmallVector<Value> results();
  KernelOp find();
  Value check(KernelOp found);
  void replace(KernelOp found, Value longest);

  CtcSearchOp op;
  KernelTable &kernels;
  const SearchKernels &target;
  OpBuilder b;
  Location loc;
  Type i64, f32;
  CtcKernelSpec spec;
  std::string suffix;
  Value scores, frames, batch, time;
};

KernelOp CtcLowering::call(const std::string &symbol, ValueRange ins, ValueRange into,
                           llvm::function_ref<func::FuncOp(OpBuilder &)> build) {
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(symbol, [&](OpBuilder &at) {
    func::FuncOp function = build(at);
    target.finish(function);
    return function;
  });
  assert(succeeded(kernel) && "a symbol of the model has the name of a kernel");
  return KernelOp::create(b, loc, into.getTypes(), SymbolRefAttr::get(*kernel), ins, into, DenseI64ArrayAttr());
}

void CtcLowering::takeOperands() {
  scores = castTo(op.getScores(), RankedTensorType::get({kDynamic, kDynamic, kDynamic}, f32));
  frames = castTo(op.getFrames(), RankedTensorType::get({kDynamic}, i64));
  batch = sizeOf(scores, spec.timeMajor ? 1 : 0);
  time = sizeOf(scores, spec.timeMajor ? 0 : 1);
  require(arith::CmpIPredicate::eq, batch, sizeOf(frames, 0),
          "ctc search: the scores have {0} items, the numbers of frames are {1}");
  require(arith::CmpIPredicate::sgt, sizeOf(scores, 2), index(spec.blank),
          "ctc search: the scores have {0} labels, the blank is {1}");
}

/// Where buildCtc writes.
SmallVector<Value> CtcLowering::results() {
  SmallVector<Value> outs{empty({kDynamic, spec.best, kDynamic}, i64, {batch, time}),
                          empty({kDynamic, spec.best}, i64, batch), empty({kDynamic, spec.best}, f32, batch),
                          empty({kDynamic, 2}, i64, batch)};
  if (spec.width) {
    Value nodes = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, time, index(spec.width)), index(1));
    outs.append({empty({kDynamic, kDynamic, 4}, i64, {batch, nodes}), empty({kDynamic, 2, spec.width, 2}, i64, batch),
                 empty({kDynamic, 2, spec.width, 3}, b.getF64Type(), batch)});
  }
  return outs;
}

KernelOp CtcLowering::find() {
  std::string symbol = (spec.width ? "ctc_beam_w" + std::to_string(spec.width) : std::string("ctc_greedy")) + suffix +
                       "_" + std::to_string(spec.blank) + (spec.timeMajor ? "_t" : "");
  SmallVector<Value> outs = results(), ins{scores, frames};
  if (target.labelsRows() && !spec.width) {
    auto flat = RankedTensorType::get({kDynamic, kDynamic}, f32);
    Value rows = tensor::CollapseShapeOp::create(b, loc, flat, scores, SmallVector<ReassociationIndices>{{0, 1}, {2}});
    Value count = arith::MulIOp::create(b, loc, batch, time), noEnd = arith::ConstantIntOp::create(b, loc, 0, 1);
    SmallVector<Value> each{empty({kDynamic, 1}, f32, count), empty({kDynamic, 1}, i64, count),
                            empty({kDynamic}, f32, count)};
    auto best = call("ctc_frames", {rows, noEnd}, each,
                     [&](OpBuilder &at) { return target.rows(at, "ctc_frames", SearchKernelSpec()); });
    ins.assign(best.getOutputs().begin(), best.getOutputs().end());
    ins.push_back(frames);
  }
  return call(symbol, ins, outs, [&](OpBuilder &at) { return target.ctc(at, symbol, spec); });
}

/// Ends the run where frames are missing or no numbers. Returns the greatest number of labels.
Value CtcLowering::check(KernelOp found) {
  std::string counter = "ctc_length" + suffix;
  auto counted = call(counter, {found.getOutputs()[1], found.getOutputs()[3]}, empty({3}, i64, {}),
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
  return number(0);
}

void CtcLowering::replace(KernelOp found, Value longest) {
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
  SmallVector<OpFoldResult> items{batch, best}, all{batch, best, longest};
  op.getLabels().replaceAllUsesWith(cut(found.getOutputs()[0], all, op.getLabels().getType()));
  op.getLengths().replaceAllUsesWith(cut(found.getOutputs()[1], items, op.getLengths().getType()));
  op.getTotals().replaceAllUsesWith(cut(found.getOutputs()[2], items, op.getTotals().getType()));
  op.erase();
}
} // namespace

void attn::lowerCtcSearch(CtcSearchOp op, KernelTable &kernels, const SearchKernels &target) {
  CtcLowering(op, kernels, target).run();
}
