#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/graph/Collect.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/gpu/BlockProduct.h"
#include "passes/lowering/choose/Epilogue.h"
#include "passes/lowering/cpu/RowProduct.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"
#include "passes/lowering/gpu/GpuKernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <functional>

using namespace mlir;

namespace attn {
namespace {

/// One product, and the kernels that compute it.
class BlockChoice {
public:
  BlockChoice(BlockProductOp op, DerivedGlobals &globals, KernelTable &kernels)
      : op(op), globals(globals), kernels(kernels), b(op), loc(op.getLoc()),
        leading(cast<RankedTensorType>(op.getLhs().getType()).getRank() - 1) {}

  /// Why not, if not.
  std::string lower() {
    if (!op.getCodes().getDefiningOp<WeightOp>())
      return "the matrix is no weight";
    for (Value part : {op.getScales(), op.getZeros()})
      if (part && !part.getDefiningOp<WeightOp>() && !matchPattern(part, m_Constant()))
        return "the scales or zero points are not stored";
    type = cast<RankedTensorType>(op.getResult().getType());
    spec.rows = countElements(type, 0, leading);
    spec.depth = op.getDepth(), spec.columns = op.getColumns();
    spec.block = op.getBlock(), spec.bits = op.getBits(), spec.isUnsigned = op.getIsUnsigned();
    spec.scale = getElementTypeOrSelf(op.getScales()), spec.zeroPoint = op.getZeroPoint();
    spec.zero = op.getZeros() ? getElementTypeOrSelf(op.getZeros()) : Type();
    std::string reason;
    if (!canBuildGpuBlockProduct(spec, reason))
      return reason;
    bool isKnown = !ShapedType::isDynamic(spec.rows), isFew = isKnown && spec.rows <= GpuBlockSpec::kFewRows;
    few = "gpu_blocks_m" + sizeText(spec.rows) + "_" + spec.symbol(), many = "gpu_unpack_" + spec.symbol();
    auto product = kernels.getOrBuild(few, [&](OpBuilder &b) { return buildGpuBlockProduct(b, loc, few, spec); });
    auto unpacked = kernels.getOrBuild(many, [&](OpBuilder &b) { return buildGpuUnpackBlocks(b, loc, many, spec); });
    if (failed(product) || failed(unpacked))
      return "the name '" + few + "' or '" + many + "' is taken";
    parts = readParts();
    if (isFew)
      b.replaceOp(op, callProduct(*product));
    else if (isKnown)
      b.replaceOp(op, callUnpacked(*unpacked));
    else
      b.replaceOp(op, choose(*product, *unpacked));
    return "";
  }

  std::string few, many; ///< names of the kernels

private:
  SmallVector<Value> readParts() {
    constexpr int64_t kWidth = GpuBlockSpec::kWidth;
    FlatSymbolRefAttr source = op.getCodes().getDefiningOp<WeightOp>().getGlobalAttr();
    auto words = RankedTensorType::get(spec.codeShape(), b.getI32Type());
    Attribute expression =
        BytePanelsAttr::get(op.getContext(), source, op.getTransposed(), kWidth, spec.group(), spec.isUnsigned);
    SmallVector<Value> result = {
        WeightOp::create(b, loc, words, globals.get(source.getValue() + "_words", words, expression, loc))};
    for (Value matrix : {op.getScales(), op.getZeros()})
      if (matrix)
        result.push_back(readPanels(b, loc, globals, matrix, op.getTransposed(), kWidth));
    return result;
  }

  Value callProduct(func::FuncOp kernel) {
    SmallVector<Value> inputs = {toMatrix(b, loc, op.getLhs(), leading)};
    llvm::append_range(inputs, parts);
    return emitRowProduct(b, loc, {op.getLhs(), type, spec.rows, spec.depth, spec.columns, /*columns=*/{}}, kernel,
                          inputs,
                          /*elementwise=*/{});
  }

  /// A contraction with the matrix in f32, for the kernels of products.
  Value callUnpacked(func::FuncOp kernel) {
    Type f32 = b.getF32Type();
    Value made = tensor::EmptyOp::create(b, loc, {spec.depth, spec.columns}, f32);
    auto call = KernelOp::create(b, loc, TypeRange(made.getType()), FlatSymbolRefAttr::get(kernel), parts,
                                 ValueRange(made), b.getDenseI64ArrayAttr({}));
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, op.getLhs());
    sizes.back() = b.getIndexAttr(spec.columns);
    Value product = contraction(b, loc, sizes, f32, op.getLhs(), call.getResult(0),
                                rowProductMaps(b.getContext(), leading + 1, /*transposed=*/false));
    return castTo(b, loc, product, type);
  }

  /// The host asks how many rows there are.
  Value choose(func::FuncOp product, func::FuncOp unpacked) {
    Value rows = arith::ConstantIndexOp::create(b, loc, 1);
    for (unsigned dim = 0; dim < leading; ++dim)
      rows = b.createOrFold<arith::MulIOp>(loc, rows, b.createOrFold<tensor::DimOp>(loc, op.getLhs(), dim));
    Value most = arith::ConstantIndexOp::create(b, loc, GpuBlockSpec::kFewRows);
    Value isFew = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, rows, most);
    auto choice = scf::IfOp::create(b, loc, TypeRange(type), isFew, /*withElseRegion=*/true);
    for (auto [region, emit] :
         {std::pair(&choice.getThenRegion(), std::function<Value()>([&] { return callProduct(product); })),
          std::pair(&choice.getElseRegion(), std::function<Value()>([&] { return callUnpacked(unpacked); }))}) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&region->front());
      scf::YieldOp::create(b, loc, emit());
    }
    return choice.getResult(0);
  }

  BlockProductOp op;
  DerivedGlobals &globals;
  KernelTable &kernels;
  IRRewriter b;
  Location loc;
  unsigned leading;
  RankedTensorType type;
  GpuBlockSpec spec;
  SmallVector<Value> parts; ///< codes, scales, zero points
};

} // namespace

void chooseGpuBlocks(ModuleOp module, KernelTable &kernels, StringRef category) {
  SymbolTable symbols(module);
  DerivedGlobals globals(module, symbols);
  for (BlockProductOp op : collect<BlockProductOp>(module)) {
    Location loc = op.getLoc();
    std::string storage =
        (Twine(op.getIsUnsigned() ? "u" : "s") + Twine(op.getBits()) + " blocks of " + Twine(op.getBlock())).str();
    BlockChoice choice(op, globals, kernels);
    std::string reason = choice.lower();
    if (!reason.empty())
      noteMissed(op, category, "blocks", reason);
    reportProduct(module, loc, storage, reason.empty() ? "f32, unpacked" : "f32, dequantised",
                  reason.empty() ? ProductVerdict::kernel : ProductVerdict::reason,
                  reason.empty() ? StringRef(choice.few) : StringRef(reason));
  }
}

} // namespace attn
