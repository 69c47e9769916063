#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/cpu/Gemm.h"
#include "passes/kernels/cpu/PackPanels.h"
#include "passes/lowering/choose/ContractionMatch.h"
#include "passes/lowering/choose/Epilogue.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/cpu/GatheredRows.h"
#include "passes/lowering/cpu/NarrowValues.h"
#include "passes/lowering/cpu/PackedWeights.h"
#include "passes/lowering/cpu/RowProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSwitch.h"

namespace attn {
#define GEN_PASS_DEF_LOWERCONTRACTIONSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// The elementwise op that becomes the epilogue of `match`, or why there is none.
std::optional<Epilogue> matchEpilogue(const Contraction &match, std::string &reason) {
  linalg::LinalgOp op = match.op;
  if (op->hasOneUse() && isRounding(*op->user_begin()))
    return std::nullopt;
  std::optional<Epilogue> epilogue =
      attn::matchEpilogue(op->getResult(0), match.rows.size(), match.columns.size(), reason);
  if (epilogue && getDims(match.resultMap) != concat(match.rows, match.columns)) {
    reason = "the result is transposed in between";
    return std::nullopt;
  }
  return epilogue;
}

//===----------------------------------------------------------------------===//
// Rewriter
//===----------------------------------------------------------------------===//

class ContractionLowering {
public:
  /// With `narrowsRows`, factors of products are the sum of `parts` in bf16.
  ContractionLowering(ModuleOp module, WeightStorage weights, bool narrowsRows, int64_t parts)
      : module(module), kernels(module), target(TargetAttr::lookup(module)), weights(weights),
        narrowsRows(narrowsRows && hasNarrowProducts(target)), parts(parts), rewriter(module.getContext()),
        panels(module, kernels.getSymbols()) {
    if (narrowsRows && parts == 1 && weights.storage == PanelStorage::F32)
      this->weights.storage = PanelStorage::BF16;
  }

  void run() {
    SmallVector<linalg::LinalgOp> ops = getContractions(module);
    pending.insert(ops.begin(), ops.end());
    for (linalg::LinalgOp op : ops) {
      pending.erase(op);
      lower(op);
    }
    linkProducts(rewriter, products);
  }

private:
  void lower(linalg::LinalgOp op);
  void report(linalg::LinalgOp op, PanelStorage storage, ProductVerdict verdict, StringRef text);
  GemmSpec makeSpec(const Contraction &match, const std::optional<Epilogue> &epilogue);
  Value emitCall(const Contraction &match, const std::optional<Epilogue> &epilogue, const GemmSpec &spec,
                 func::FuncOp kernel);
  SmallVector<Value> makeInputs(const Contraction &match, const std::optional<Epilogue> &epilogue, const GemmSpec &spec,
                                func::FuncOp kernel, Location loc, SmallVectorImpl<int64_t> &elementwise);
  Value emptyParts(const GemmSpec &spec, OpFoldResult rows, Location loc);
  FailureOr<func::FuncOp> getPacking(const GemmSpec &spec, Location loc);
  Value packAtRun(const Contraction &match, const GemmSpec &spec, Location loc);
  Value narrow(Value value, Location loc);
  SmallVector<Value> getParts(Value value, Location loc);
  Value narrowRest(Value value, ValueRange parts, Location loc);
  bool isReadNarrow(Value value);
  Value arrange(Value value, AffineMap map, const LoopDims &dims, Location loc);

  /// Of the op that the kernel replaces.
  RankedTensorType getResultType(const Contraction &match, const std::optional<Epilogue> &epilogue) {
    linalg::LinalgOp last = match.op;
    if (epilogue)
      last = epilogue->op;
    return cast<RankedTensorType>(last->getResult(0).getType());
  }

  static remark::RemarkOpts remarkNamed(StringRef name) {
    return remark::RemarkOpts::name(name).category("attn-lower-contractions");
  }

  ModuleOp module;
  KernelTable kernels;
  TargetAttr target;
  WeightStorage weights;
  bool narrowsRows; // activations are rounded to bf16
  int64_t parts;    // of them then
  IRRewriter rewriter;
  DenseMap<Value, Value> narrowed;
  DenseMap<Value, SmallVector<Value>> split;
  SmallVector<ProductCall> products;          // by weights
  llvm::SmallPtrSet<Operation *, 16> pending; // contractions that are not lowered yet
  PackedWeights panels;
};

/// The kernel that packs what the run computes for `spec`.
FailureOr<func::FuncOp> ContractionLowering::getPacking(const GemmSpec &spec, Location loc) {
  PackPanelsSpec pack{spec.k, spec.n, spec.panelWidth(), spec.lanes};
  return kernels.getOrBuild(pack, loc, buildPackPanels);
}

/// Panels of what the run computes, packed by that kernel.
Value ContractionLowering::packAtRun(const Contraction &match, const GemmSpec &spec, Location loc) {
  unsigned numBatch = match.numBatch, numSums = match.sums.size();
  LoopDims batch(ArrayRef(match.rows).take_front(numBatch));
  Value right = arrange(match.right, match.rightMap, concat(concat(batch, match.sums), match.columns), loc);
  Type element = getElementTypeOrSelf(right.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, right);
  OpFoldResult k = multiplySizes(rewriter, loc, ArrayRef(sizes).slice(numBatch, numSums)),
               n = multiplySizes(rewriter, loc, ArrayRef(sizes).drop_front(numBatch + numSums)),
               batches = multiplySizes(rewriter, loc, ArrayRef(sizes).take_front(numBatch));
  right = toCube(rewriter, loc, right, numBatch, numSums, {batches, k, n});
  Value panels = ceilDivide(rewriter, loc, n, spec.panelWidth());
  if (numBatch)
    panels = arith::MulIOp::create(rewriter, loc, panels, getValueOrCreateConstantIndexOp(rewriter, loc, batches));
  SmallVector<OpFoldResult> packedSizes = {panels, ShapedType::isDynamic(spec.k) ? k : rewriter.getIndexAttr(spec.k),
                                           rewriter.getIndexAttr(spec.panelWidth())};
  Value empty = tensor::EmptyOp::create(rewriter, loc, packedSizes, element);
  Value input = castTo(rewriter, loc, right, RankedTensorType::get({ShapedType::kDynamic, spec.k, spec.n}, element));
  return callKernel(rewriter, loc, *getPacking(spec, loc), input, empty)->getResult(0);
}

/// `value` rounded to bf16, once for all contractions that read it.
Value ContractionLowering::narrow(Value value, Location loc) {
  Value &known = narrowed[value];
  if (known)
    return known;
  if (Value half = getUnwidened(rewriter, value); half && getElementTypeOrSelf(half.getType()).isBF16())
    return known = half;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointAfterValue(value);
  return known = convertElements(rewriter, loc, value, rewriter.getBF16Type());
}

/// The parts of `value` in bf16, made once for all contractions that read it.
SmallVector<Value> ContractionLowering::getParts(Value value, Location loc) {
  if (parts == 1)
    return {narrow(value, loc)};
  SmallVector<Value> &known = split[value];
  OpBuilder::InsertionGuard guard(rewriter);
  if (known.empty())
    rewriter.setInsertionPointAfterValue(value);
  while (static_cast<int64_t>(known.size()) < parts)
    known.push_back(narrowRest(value, known, loc));
  return known;
}

/// What `parts` leave of `value`, rounded to bf16. The differences are exact; of
/// an infinity, or what rounds to one, nothing is left but a NaN.
Value ContractionLowering::narrowRest(Value value, ValueRange parts, Location loc) {
  Type half = rewriter.getBF16Type();
  unsigned rank = cast<RankedTensorType>(value.getType()).getRank();
  SmallVector<Value> inputs = {value};
  llvm::append_range(inputs, parts);
  SmallVector<AffineMap> maps(inputs.size(), rewriter.getMultiDimIdentityMap(rank));
  auto body = formula([&](ArrayRef<Num> x) {
    Num rest = x.front();
    for (const Num &part : x.drop_front())
      rest = rest - convert(part, rewriter.getF32Type());
    return convert(rest, half);
  });
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, value), half, inputs, maps, body);
}

/// Whether `value` is read in bf16 alone: by contractions, or rounded.
bool ContractionLowering::isReadNarrow(Value value) {
  return narrowsRows && !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *user) {
           if (isRounding(user) || isa<tensor::DimOp>(user))
             return true;
           Contraction match;
           std::string reason;
           if (!pending.contains(user) || failed(matchContraction(cast<linalg::LinalgOp>(user), match, reason)))
             return false;
           GemmSpec spec = makeSpec(match, std::nullopt);
           return match.activation == value && match.right != value && spec.hasNarrowRows && canBuildGemm(spec);
         });
}

/// `value`, which `map` reads, with its dimensions in the order of the loops `dims`.
Value ContractionLowering::arrange(Value value, AffineMap map, const LoopDims &dims, Location loc) {
  SmallVector<int64_t> permutation;
  for (unsigned dim : dims)
    permutation.push_back(getPosition(map, dim));
  if (llvm::is_sorted(permutation))
    return value;
  return transposed(rewriter, loc, value, permutation);
}

GemmSpec ContractionLowering::makeSpec(const Contraction &match, const std::optional<Epilogue> &epilogue) {
  RankedTensorType result = getResultType(match, epilogue);
  auto sizeOf = [](RankedTensorType type, AffineMap map, ArrayRef<unsigned> dims) {
    int64_t size = 1;
    for (unsigned dim : dims) {
      int64_t extent = type.getDimSize(getPosition(map, dim));
      size = ShapedType::isDynamic(size) || ShapedType::isDynamic(extent) ? ShapedType::kDynamic : size * extent;
    }
    return size;
  };
  int64_t n = sizeOf(match.right.getType(), match.rightMap, match.columns);
  int64_t k = sizeOf(match.right.getType(), match.rightMap, match.sums);
  int64_t m = match.numBatch ? ShapedType::kDynamic : sizeOf(result, match.resultMap, match.rows);
  GemmSpec spec = GemmSpec::forTarget(target, m, k, n);
  spec.isBatched = match.numBatch > 0;
  if (match.global) {
    spec.storage = weights.storage;
    if (spec.storage == PanelStorage::F32 && !narrowsRows)
      spec.storage = panels.getStorage(match.global, target);
    if (spec.storage == PanelStorage::I8)
      spec.group = weights.group ? std::min(weights.group, k) : k;
    if (narrowsRows && parts > 1 && k % 2 == 0)
      spec.storage = PanelStorage::BF16;
    spec.hasNarrowRows = narrowsRows && spec.storage == PanelStorage::BF16 && k % 2 == 0;
    if (spec.hasNarrowRows)
      spec.parts = parts;
    if (spec.hasNarrowRows && GemmSpec::mayHaveTiles(target))
      spec.useTiles(target);
    else if (spec.parts == 1 && (spec.storage <= PanelStorage::F16 || spec.hasNarrowRows))
      spec.fitColumns(target, panels.getParts(match));
    spec.sharePanels();
    spec.hasHalfTiles = spec.mayHaveHalfTiles(target);
    // A single block of rows streams its panels; there prefetching looks ahead by bytes.
    spec.prefetchesNext = ShapedType::isDynamic(m) || m > spec.tileRows;
  } else {
    spec.fitColumns(target);
  }
  spec.gathersRows = spec.storage != PanelStorage::I8 && !spec.hasNarrowRows && !spec.hasHalfTiles &&
                     GatheredRows::find(match, spec.k).has_value();
  if (epilogue)
    static_cast<EpilogueSpec &>(spec) = epilogue->getSpec();
  return spec;
}

/// Notes how a product by a weight is computed that the model stores in 16 bits.
void ContractionLowering::report(linalg::LinalgOp op, PanelStorage storage, ProductVerdict verdict, StringRef text) {
  PanelStorage stored = PanelStorage::F32;
  for (Value operand : op->getOperands())
    if (auto weight = operand.getDefiningOp<WeightOp>())
      stored = panels.getStorage(weight.getGlobalAttr(), target);
  if (stored == PanelStorage::F32)
    return;
  StringRef names[] = {"f32", "f16", "bf16", "s8"};
  reportProduct(module, op.getLoc(), names[static_cast<int>(storage)], narrowsRows ? "bf16" : "f32", verdict, text);
}

void ContractionLowering::lower(linalg::LinalgOp op) {
  Contraction match;
  std::string reason;
  Location loc = op.getLoc();
  auto missed = [&](StringRef why) {
    remark::missed(loc, remarkNamed("gemm")) << remark::reason("{0}", why);
    report(op, PanelStorage::F32, ProductVerdict::reason, why);
  };
  if (failed(matchContraction(op, match, reason)))
    return missed(reason);
  std::optional<Epilogue> epilogue = matchEpilogue(match, reason);
  auto spec = fitEpilogue<GemmSpec>(epilogue, [&] { return makeSpec(match, epilogue); }, canBuildGemm, reason);
  if (!epilogue && !reason.empty())
    remark::missed(loc, remarkNamed("epilogue")) << remark::reason("{0}", reason);
  if (!canBuildGemm(spec, &reason))
    return missed(reason);
  Operation *last = epilogue ? epilogue->op.getOperation() : op.getOperation();
  spec.hasNarrowResult = parts == 1 && isReadNarrow(last->getResult(0));
  if (spec.hasNarrowResult && epilogue) // GELU's error is far below its rounding
    epilogue->op.getBody()->walk([](math::ErfOp erf) { erf.setFastmath(arith::FastMathFlags::afn); });
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, loc, buildGemm);
  if (failed(kernel))
    return missed("the name '" + spec.symbol() + "' is taken");
  if (!match.global && failed(getPacking(spec, loc)))
    return missed("the name of the kernel that packs is taken");
  remark::passed(loc, remarkNamed("gemm")) << remark::add("{0}", spec.symbol());
  report(op, spec.storage, ProductVerdict::kernel, spec.symbol());

  rewriter.setInsertionPoint(last);
  Value result = emitCall(match, epilogue, spec, *kernel);
  if (spec.hasNarrowResult) { // who reads it takes the narrow one
    Value half = result;
    for (Operation *user : llvm::make_early_inc_range(last->getResult(0).getUsers()))
      if (isRounding(user))
        rewriter.replaceOp(user, half);
      else if (isa<tensor::DimOp>(user))
        rewriter.modifyOpInPlace(user, [&] { user->setOperand(0, half); });
    result = convertElements(rewriter, loc, half, rewriter.getF32Type());
    narrowed[result] = half;
  }
  rewriter.replaceOp(last, result);
  if (epilogue)
    rewriter.eraseOp(op);
}

/// The operands of `kernel`: rows, panels, what the epilogue reads (`elementwise` gets those that have an element for
/// each of the result), and what is prefetched.
SmallVector<Value> ContractionLowering::makeInputs(const Contraction &match, const std::optional<Epilogue> &epilogue,
                                                   const GemmSpec &spec, func::FuncOp kernel, Location loc,
                                                   SmallVectorImpl<int64_t> &elementwise) {
  unsigned numRows = match.rows.size();
  SmallVector<Value> activations = {match.activation};
  if (spec.hasNarrowRows)
    activations = getParts(match.activation, loc);
  if (spec.gathersRows) {
    GatheredRows::Operands gathered = GatheredRows::find(match, spec.k)->emit(rewriter, loc);
    activations = {gathered.rowsAt, gathered.depthAt, gathered.source};
  } else {
    for (Value &part : activations)
      part = toMatrix(rewriter, loc, arrange(part, match.activationMap, concat(match.rows, match.sums), loc), numRows);
  }
  SmallVector<Value> inputs = {activations.front()};
  if (match.global)
    llvm::append_range(inputs, panels.get(rewriter, match, spec, loc));
  else
    inputs.push_back(packAtRun(match, spec, loc));
  llvm::append_range(inputs, llvm::drop_begin(activations));
  if (epilogue)
    addEpilogueInputs(rewriter, loc, *epilogue, getElementTypeOrSelf(kernel.getArgumentTypes().back()), numRows, inputs,
                      elementwise);
  if (spec.prefetchesNext)
    inputs.push_back(inputs[1]); // linkProducts knows better
  castToArguments(rewriter, loc, kernel, inputs);
  return inputs;
}

/// Room for `rows` rows in parts.
Value ContractionLowering::emptyParts(const GemmSpec &spec, OpFoldResult rows, Location loc) {
  SmallVector<int64_t> shape = spec.rowPartShape();
  OpFoldResult blocks = rewriter.getIndexAttr(shape[0]);
  if (ShapedType::isDynamic(shape[0]))
    blocks = ceilDivide(rewriter, loc, rows, GemmSpec::kPartedRows);
  Value empty =
      tensor::EmptyOp::create(rewriter, loc, {blocks, rewriter.getIndexAttr(shape[1])}, rewriter.getBF16Type());
  return castTo(rewriter, loc, empty, RankedTensorType::get(shape, rewriter.getBF16Type()));
}

/// Calls `kernel` in place of the contraction, or of its epilogue, and returns
/// what that op yields.
Value ContractionLowering::emitCall(const Contraction &match, const std::optional<Epilogue> &epilogue,
                                    const GemmSpec &spec, func::FuncOp kernel) {
  linalg::LinalgOp op = match.op, last = op;
  Location loc = op.getLoc();
  if (epilogue) {
    last = epilogue->op;
    loc = rewriter.getFusedLoc({loc, last.getLoc()});
  }
  RankedTensorType resultType = getResultType(match, epilogue);
  Type element = spec.hasNarrowResult ? Type(rewriter.getBF16Type()) : resultType.getElementType();
  resultType = cast<RankedTensorType>(resultType.clone(element));
  unsigned numRows = match.rows.size();

  // Sizes of the result: those its destination was made with, where known.
  Value destination = last.getDpsInits()[0];
  if (auto fill = destination.getDefiningOp<linalg::FillOp>())
    destination = fill.getOutputs()[0];
  auto made = destination.getDefiningOp<tensor::EmptyOp>();
  SmallVector<OpFoldResult> resultSizes =
      made ? made.getMixedSizes() : tensor::getMixedSizes(rewriter, loc, destination);
  // Position in the result of each of (rows, columns).
  SmallVector<int64_t> order;
  for (unsigned dim : concat(match.rows, match.columns))
    order.push_back(getPosition(match.resultMap, dim));
  SmallVector<OpFoldResult> sizes = applyPermutation(resultSizes, order);

  SmallVector<int64_t> elementwise;
  SmallVector<Value> inputs = makeInputs(match, epilogue, spec, kernel, loc, elementwise);
  OpFoldResult rows = rewriter.getIndexAttr(spec.m), columns = rewriter.getIndexAttr(spec.n);
  if (ShapedType::isDynamic(spec.m)) // of the kernel's type, though the sizes may all be known
    rows = getValueOrCreateConstantIndexOp(rewriter, loc,
                                           multiplySizes(rewriter, loc, ArrayRef(sizes).take_front(numRows)));
  if (ShapedType::isDynamic(spec.n))
    columns = getValueOrCreateConstantIndexOp(rewriter, loc,
                                              multiplySizes(rewriter, loc, ArrayRef(sizes).drop_front(numRows)));
  SmallVector<Value> inits;
  if (spec.hasHalfTiles)
    inits.push_back(emptyParts(spec, rows, loc));
  inits.push_back(tensor::EmptyOp::create(rewriter, loc, {rows, columns}, element));
  KernelOp call = callKernel(rewriter, loc, kernel, inputs, inits, elementwise);
  if (match.global)
    products.push_back({call, spec.prefetchesNext});
  auto expandedType = RankedTensorType::get(applyPermutation(resultType.getShape(), order), element);
  Value result = fromMatrix(rewriter, loc, call->getResults().back(), expandedType, sizes, numRows);
  if (!llvm::is_sorted(order)) {
    Value permuted = tensor::EmptyOp::create(rewriter, loc, resultSizes, element);
    result = linalg::TransposeOp::create(rewriter, loc, result, permuted, invertPermutationVector(order))->getResult(0);
  }
  return castTo(rewriter, loc, result, resultType);
}

struct LowerContractionsPass : attn::impl::LowerContractionsPassBase<LowerContractionsPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<WeightStorage> storage = WeightStorage::parse(weights);
    if (!storage) {
      getOperation().emitError("expects weights in f32, bf16, int8, int8:GROUP or int4:BLOCK, got '") << weights << "'";
      return signalPassFailure();
    }
    int64_t parts =
        llvm::StringSwitch<int64_t>(precision).Cases({"f32", "bf16"}, 1).Case("bf16x3", 2).Case("bf16x6", 3).Default(0);
    if (!parts) {
      getOperation().emitError("expects precision f32, bf16, bf16x3 or bf16x6, got '") << precision << "'";
      return signalPassFailure();
    }
    if (parts > 1 && storage->storage != PanelStorage::F32) {
      getOperation().emitError("expects weights in f32 with precision ") << precision << ", got '" << weights << "'";
      return signalPassFailure();
    }
    ContractionLowering(getOperation(), *storage, precision != "f32", parts).run();
  }
};

} // namespace
