#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/kernels/cpu/Gemm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {
#define GEN_PASS_DEF_LOWERCONTRACTIONSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

using Dims = SmallVector<unsigned>;

/// A contraction of an activation A and a weight W, its loops sorted into rows
/// (A and result), columns (W and result) and sums (A and W).
struct Contraction {
  linalg::LinalgOp op;
  Value activation;
  TypedValue<RankedTensorType> weight;
  FlatSymbolRefAttr global;
  AffineMap activationMap, resultMap;
  Dims rows, columns, sums;
  bool isTransposed = false; ///< W is columns x sums

  int64_t getResultPosition(unsigned dim) const { return *resultMap.getResultPosition(getAffineDim(dim)); }
  int64_t getActivationPosition(unsigned dim) const { return *activationMap.getResultPosition(getAffineDim(dim)); }

private:
  AffineExpr getAffineDim(unsigned dim) const { return getAffineDimExpr(dim, resultMap.getContext()); }
};

/// The dimensions [first, end) as one group of a reshape.
ReassociationIndices range(int64_t first, int64_t end) { return llvm::to_vector_of<int64_t, 2>(llvm::seq(first, end)); }

/// An elementwise user that becomes part of the kernel.
struct Epilogue {
  linalg::GenericOp op;
  unsigned accumulator = 0;
  SmallVector<EpilogueOperand> kinds;
  SmallVector<Value> operands;
};

LogicalResult fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return failure();
}

Dims getDims(AffineMap map) {
  return llvm::map_to_vector(map.getResults(), [](AffineExpr e) { return cast<AffineDimExpr>(e).getPosition(); });
}

Dims concat(const Dims &x, const Dims &y) {
  Dims both(x);
  llvm::append_range(both, y);
  return both;
}

bool isZeroFill(Value value) {
  auto fill = value.getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs().front(), m_AnyZeroFloat());
}

/// Number of elements along the dimensions [first, first + count) of a type.
int64_t product(RankedTensorType type, unsigned first, unsigned count) {
  int64_t elements = 1;
  for (int64_t size : type.getShape().slice(first, count)) {
    if (ShapedType::isDynamic(size))
      return ShapedType::kDynamic;
    elements *= size;
  }
  return elements;
}

LogicalResult matchContraction(linalg::LinalgOp op, Contraction &match, std::string &reason) {
  match.op = op;
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1)
    return fail(reason, "it is not on tensors");
  for (Value operand : op->getOperands())
    if (!getElementTypeOrSelf(operand.getType()).isF32())
      return fail(reason, "it is not all f32");
  unsigned weightNumber = 1;
  auto weightOp = op->getOperand(1).getDefiningOp<WeightOp>();
  if (!weightOp) {
    weightNumber = 0;
    weightOp = op->getOperand(0).getDefiningOp<WeightOp>();
  }
  if (!weightOp)
    return fail(reason, "neither operand is a weight");
  match.weight = cast<TypedValue<RankedTensorType>>(weightOp.getResult());
  match.global = weightOp.getGlobalAttr();
  if (!isZeroFill(op.getDpsInits()[0]))
    return fail(reason, "it does not accumulate onto zeros");

  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  match.activation = op->getOperand(1 - weightNumber);
  match.activationMap = maps[1 - weightNumber];
  match.resultMap = maps[2];
  Dims activation = getDims(maps[1 - weightNumber]), weight = getDims(maps[weightNumber]), result = getDims(maps[2]);
  for (unsigned dim : result) {
    bool inA = llvm::is_contained(activation, dim), inW = llvm::is_contained(weight, dim);
    if (inA && inW)
      return fail(reason, "the weight has a batch dimension");
    if (!inA && !inW)
      return fail(reason, "the result has a dimension of its own");
    (inA ? match.rows : match.columns).push_back(dim);
  }
  for (unsigned dim : weight) {
    bool inA = llvm::is_contained(activation, dim), inC = llvm::is_contained(result, dim);
    if (!inA && !inC)
      return fail(reason, "the weight has a dimension of its own");
    if (inA)
      match.sums.push_back(dim);
  }
  if (activation.size() != match.rows.size() + match.sums.size())
    return fail(reason, "the activation has a dimension of its own");
  if (match.sums.empty() || match.columns.empty())
    return fail(reason, "the weight is a vector");
  match.isTransposed = weight == concat(match.columns, match.sums);
  if (!match.isTransposed && weight != concat(match.sums, match.columns))
    return fail(reason, "the weight's dimensions are not in the order of the result's");
  return success();
}

/// How `map`, from the loops of an elementwise op whose result has `rows`
/// leading and then `columns` dimensions, reads an operand.
std::optional<EpilogueOperand> classify(AffineMap map, unsigned rows, unsigned columns) {
  SmallVector<unsigned> dims;
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      dims.push_back(dim.getPosition());
    else if (!isa<AffineConstantExpr>(expr))
      return std::nullopt;
  }
  auto isRange = [&](unsigned first, unsigned count) {
    return dims.size() == count && llvm::equal(dims, llvm::seq(first, first + count));
  };
  if (dims.empty())
    return EpilogueOperand::Scalar;
  if (isRange(0, rows + columns))
    return EpilogueOperand::Full;
  if (isRange(rows, columns))
    return EpilogueOperand::RowVector;
  if (isRange(0, rows))
    return EpilogueOperand::Column;
  return std::nullopt;
}

/// The elementwise op that uses `match`'s result alone. Without one, `reason`
/// is empty where there is nothing to fuse.
std::optional<Epilogue> matchEpilogue(const Contraction &match, std::string &reason) {
  linalg::LinalgOp op = match.op;
  if (!op->hasOneUse())
    return std::nullopt;
  OpOperand &use = *op->getUses().begin();
  auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!generic || generic.getNumParallelLoops() != generic.getNumLoops())
    return std::nullopt;
  auto refuse = [&](const Twine &text) {
    reason = text.str();
    return std::nullopt;
  };
  if (getDims(match.resultMap) != concat(match.rows, match.columns))
    return refuse("the result is transposed in between");
  if (generic.getNumDpsInits() != 1 || generic.isDpsInit(&use))
    return refuse("the elementwise op has several results");
  if (!generic.getMatchingIndexingMap(&use).isIdentity() ||
      !generic.getMatchingIndexingMap(generic.getDpsInitOperand(0)).isIdentity())
    return refuse("the elementwise op broadcasts or permutes");
  Epilogue epilogue;
  epilogue.op = generic;
  epilogue.accumulator = use.getOperandNumber();
  for (OpOperand *operand : generic.getDpsInputOperands()) {
    if (operand == &use)
      continue;
    auto type = dyn_cast<RankedTensorType>(operand->get().getType());
    if (!type)
      return refuse("operand " + Twine(operand->getOperandNumber()) + " of the elementwise op is no tensor");
    auto kind = classify(generic.getMatchingIndexingMap(operand), match.rows.size(), match.columns.size());
    if (!kind)
      return refuse("operand " + Twine(operand->getOperandNumber()) +
                    " of the elementwise op is neither a scalar nor by row, by column or by element");
    epilogue.kinds.push_back(*kind);
    epilogue.operands.push_back(operand->get());
  }
  return epilogue;
}

//===----------------------------------------------------------------------===//
// Rewriter
//===----------------------------------------------------------------------===//

class ContractionLowering {
public:
  ContractionLowering(ModuleOp module)
      : module(module), symbols(module), target(TargetAttr::lookup(module)), rewriter(module.getContext()) {
    for (GlobalOp global : module.getOps<GlobalOp>())
      if (auto pack = dyn_cast<PackPanelsAttr>(global.getExpression()))
        panels.try_emplace(pack, global);
  }

  void run() {
    SmallVector<linalg::LinalgOp> ops;
    module.walk([&](linalg::LinalgOp op) {
      if (linalg::isaContractionOpInterface(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops)
      lower(op);
  }

private:
  void lower(linalg::LinalgOp op);
  GemmSpec makeSpec(const Contraction &match, const std::optional<Epilogue> &epilogue);
  Value emitCall(const Contraction &match, const std::optional<Epilogue> &epilogue, const GemmSpec &spec,
                 func::FuncOp kernel);
  FailureOr<func::FuncOp> getKernel(const GemmSpec &spec, Location loc);
  Value getPanels(const Contraction &match, const GemmSpec &spec, Location loc);
  GlobalOp addGlobal(const Twine &name, RankedTensorType type, Attribute expression, Location loc);
  Value arrangeActivation(const Contraction &match, Location loc);
  Value toMatrix(Value value, Location loc, unsigned leading);
  Value flatten(Value value, EpilogueOperand kind, const Contraction &match, Location loc);

  Value castTo(Value value, RankedTensorType type, Location loc) {
    return value.getType() == type ? value : tensor::CastOp::create(rewriter, loc, type, value).getResult();
  }
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
  SymbolTable symbols;
  TargetAttr target;
  IRRewriter rewriter;
  DenseMap<Attribute, GlobalOp> panels;
};

/// The kernel `spec`, built where the module has none yet.
FailureOr<func::FuncOp> ContractionLowering::getKernel(const GemmSpec &spec, Location loc) {
  std::string name = spec.symbol();
  if (Operation *known = symbols.lookup(name)) {
    if (auto kernel = dyn_cast<func::FuncOp>(known); kernel && kernel->hasAttr(AttnDialect::kKernelAttr))
      return kernel;
    return failure();
  }
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToEnd(module.getBody());
  FailureOr<func::FuncOp> kernel = buildGemm(rewriter, loc, spec);
  if (succeeded(kernel))
    symbols.insert(*kernel);
  return kernel;
}

GlobalOp ContractionLowering::addGlobal(const Twine &name, RankedTensorType type, Attribute expression, Location loc) {
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToEnd(module.getBody());
  auto global = GlobalOp::create(rewriter, loc, name.str(), type, expression);
  symbols.insert(global); // renames on a clash
  return global;
}

/// The packed weight: one global for all uses of one packing.
Value ContractionLowering::getPanels(const Contraction &match, const GemmSpec &spec, Location loc) {
  FlatSymbolRefAttr source = match.global;
  Type f32 = rewriter.getF32Type();
  if (match.weight.getType().getRank() != 2) {
    SmallVector<int64_t> sizes = {spec.k, spec.n};
    if (match.isTransposed)
      std::swap(sizes[0], sizes[1]);
    auto matrix = RankedTensorType::get(sizes, f32);
    auto shape = cast<Attribute>(ReshapeAttr::get(rewriter.getContext(), source));
    GlobalOp &global = panels[ArrayAttr::get(rewriter.getContext(), {shape, TypeAttr::get(matrix)})];
    if (!global)
      global = addGlobal(source.getValue() + "_matrix", matrix, shape, loc);
    source = FlatSymbolRefAttr::get(global);
  }
  auto pack = PackPanelsAttr::get(rewriter.getContext(), source, match.isTransposed, spec.panelWidth());
  auto packed = RankedTensorType::get({spec.numPanels(), spec.k, spec.panelWidth()}, f32);
  GlobalOp &global = panels[pack];
  if (!global)
    global = addGlobal(source.getValue() + (match.isTransposed ? "_tpanels" : "_panels") + Twine(spec.panelWidth()),
                       packed, pack, loc);
  return WeightOp::create(rewriter, loc, packed, FlatSymbolRefAttr::get(global));
}

/// The activation with its dimensions as (rows, sums).
Value ContractionLowering::arrangeActivation(const Contraction &match, Location loc) {
  SmallVector<int64_t> permutation;
  for (unsigned dim : concat(match.rows, match.sums))
    permutation.push_back(match.getActivationPosition(dim));
  if (llvm::is_sorted(permutation))
    return match.activation;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, match.activation);
  Value empty = tensor::EmptyOp::create(rewriter, loc, applyPermutation(sizes, permutation), rewriter.getF32Type());
  return linalg::TransposeOp::create(rewriter, loc, match.activation, empty, permutation)->getResult(0);
}

/// `value` as a matrix whose rows are its first `leading` dimensions.
Value ContractionLowering::toMatrix(Value value, Location loc, unsigned leading) {
  auto type = cast<RankedTensorType>(value.getType());
  unsigned rank = type.getRank();
  if (leading == 0) {
    if (rank > 1)
      value = tensor::CollapseShapeOp::create(rewriter, loc, value, ArrayRef{range(0, rank)});
    auto row = RankedTensorType::get({1, product(type, 0, rank)}, type.getElementType());
    return tensor::ExpandShapeOp::create(rewriter, loc, row, value, ArrayRef<ReassociationIndices>{{0, 1}});
  }
  if (leading == 1 && rank == 2)
    return value;
  SmallVector<ReassociationIndices> groups = {range(0, leading), range(leading, rank)};
  return tensor::CollapseShapeOp::create(rewriter, loc, value, groups);
}

/// An operand of the epilogue in the shape that the kernel reads.
Value ContractionLowering::flatten(Value value, EpilogueOperand kind, const Contraction &match, Location loc) {
  if (kind == EpilogueOperand::Full)
    return toMatrix(value, loc, match.rows.size());
  int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
  if (rank == (kind == EpilogueOperand::Scalar ? 0 : 1))
    return value;
  SmallVector<ReassociationIndices> groups;
  if (kind != EpilogueOperand::Scalar)
    groups.push_back(range(0, rank));
  return tensor::CollapseShapeOp::create(rewriter, loc, value, groups);
}

GemmSpec ContractionLowering::makeSpec(const Contraction &match, const std::optional<Epilogue> &epilogue) {
  RankedTensorType result = getResultType(match, epilogue);
  RankedTensorType weight = match.weight.getType();
  unsigned numColumns = match.columns.size(), numSums = match.sums.size();
  int64_t n = product(weight, match.isTransposed ? 0 : numSums, numColumns);
  int64_t k = product(weight, match.isTransposed ? numColumns : 0, numSums);
  int64_t m = 1;
  for (unsigned dim : match.rows) {
    int64_t size = result.getDimSize(match.getResultPosition(dim));
    m = ShapedType::isDynamic(m) || ShapedType::isDynamic(size) ? ShapedType::kDynamic : m * size;
  }
  GemmSpec spec = GemmSpec::forTarget(target, m, k, n);
  if (epilogue) {
    linalg::GenericOp generic = epilogue->op;
    spec.epilogue = generic.getBody();
    spec.accumulator = epilogue->accumulator;
    spec.operands = epilogue->kinds;
  }
  return spec;
}

void ContractionLowering::lower(linalg::LinalgOp op) {
  Contraction match;
  std::string reason;
  Location loc = op.getLoc();
  if (failed(matchContraction(op, match, reason))) {
    remark::missed(loc, remarkNamed("gemm")) << remark::reason("{0}", reason);
    return;
  }
  std::optional<Epilogue> epilogue = matchEpilogue(match, reason);
  GemmSpec spec = makeSpec(match, epilogue);
  if (epilogue && !canBuildGemm(spec, &reason)) {
    epilogue.reset();
    spec = makeSpec(match, epilogue);
  }
  if (!epilogue && !reason.empty())
    remark::missed(loc, remarkNamed("epilogue")) << remark::reason("{0}", reason);
  if (!canBuildGemm(spec, &reason)) {
    remark::missed(loc, remarkNamed("gemm")) << remark::reason("{0}", reason);
    return;
  }
  FailureOr<func::FuncOp> kernel = getKernel(spec, loc);
  if (failed(kernel)) {
    remark::missed(loc, remarkNamed("gemm")) << remark::reason("the name '{0}' is taken", spec.symbol());
    return;
  }
  remark::passed(loc, remarkNamed("gemm")) << remark::add("{0}", spec.symbol());

  Operation *last = epilogue ? epilogue->op.getOperation() : op.getOperation();
  rewriter.setInsertionPoint(last);
  Value result = emitCall(match, epilogue, spec, *kernel);
  rewriter.replaceOp(last, result);
  if (epilogue)
    rewriter.eraseOp(op);
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
  Type f32 = rewriter.getF32Type();
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
    order.push_back(match.getResultPosition(dim));
  SmallVector<OpFoldResult> sizes = applyPermutation(resultSizes, order);
  auto expandedType = RankedTensorType::get(applyPermutation(resultType.getShape(), order), f32);

  SmallVector<Value> inputs = {toMatrix(arrangeActivation(match, loc), loc, numRows), getPanels(match, spec, loc)};
  SmallVector<int64_t> elementwise;
  if (epilogue)
    for (auto [kind, operand] : llvm::zip_equal(epilogue->kinds, epilogue->operands)) {
      if (kind == EpilogueOperand::Full)
        elementwise.push_back(inputs.size());
      inputs.push_back(flatten(operand, kind, match, loc));
    }
  // One operand may know a size that another does not.
  for (auto [input, type] : llvm::zip(inputs, kernel.getArgumentTypes()))
    input = castTo(input, RankedTensorType::get(cast<MemRefType>(type).getShape(), f32), loc);
  OpFoldResult rows = rewriter.getIndexAttr(spec.m);
  if (ShapedType::isDynamic(spec.m)) {
    Value elements;
    for (OpFoldResult size : ArrayRef(sizes).take_front(numRows)) {
      Value next = getValueOrCreateConstantIndexOp(rewriter, loc, size);
      elements = elements ? arith::MulIOp::create(rewriter, loc, elements, next).getResult() : next;
    }
    rows = elements;
  }
  Value empty = tensor::EmptyOp::create(rewriter, loc, {rows, rewriter.getIndexAttr(spec.n)}, f32);
  Value result = KernelOp::create(rewriter, loc, empty.getType(), FlatSymbolRefAttr::get(kernel), inputs, empty,
                                  rewriter.getDenseI64ArrayAttr(elementwise))
                     ->getResult(0);

  unsigned rank = expandedType.getRank();
  if (numRows == 0) {
    result = tensor::CollapseShapeOp::create(rewriter, loc, result, ArrayRef{range(0, 2)});
    if (rank > 1)
      result = tensor::ExpandShapeOp::create(rewriter, loc, expandedType, result, ArrayRef{range(0, rank)}, sizes);
  } else if (rank > 2) {
    result = tensor::ExpandShapeOp::create(rewriter, loc, expandedType, result,
                                           ArrayRef{range(0, numRows), range(numRows, rank)}, sizes);
  }
  if (!llvm::is_sorted(order)) {
    Value permuted = tensor::EmptyOp::create(rewriter, loc, resultSizes, f32);
    result = linalg::TransposeOp::create(rewriter, loc, result, permuted, invertPermutationVector(order))->getResult(0);
  }
  return castTo(result, resultType, loc);
}

struct LowerContractionsPass : attn::impl::LowerContractionsPassBase<LowerContractionsPass> {
  void runOnOperation() override { ContractionLowering(getOperation()).run(); }
};

} // namespace
