#include "passes/lowering/cpu/RowProduct.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

/// A constant matrix in panels, as #attn.pack_panels has those of a global.
static DenseElementsAttr packConstant(DenseElementsAttr matrix, bool transposed, int64_t width) {
  auto type = cast<RankedTensorType>(matrix.getType());
  int64_t k = type.getDimSize(transposed ? 1 : 0), n = type.getDimSize(transposed ? 0 : 1);
  int64_t panels = llvm::divideCeil(n, width);
  Attribute zero = Builder(matrix.getContext()).getZeroAttr(type.getElementType());
  SmallVector<Attribute> source(matrix.getValues<Attribute>()), packed(panels * k * width, zero);
  for (int64_t row = 0; row < k; ++row)
    for (int64_t column = 0; column < n; ++column)
      packed[(column / width * k + row) * width + column % width] =
          source[transposed ? column * k + row : row * n + column];
  return DenseElementsAttr::get(RankedTensorType::get({panels, k, width}, type.getElementType()), packed);
}

Value readPanels(RewriterBase &rewriter, Location loc, DerivedGlobals &globals, Value matrix, bool transposed,
                 int64_t width) {
  DenseElementsAttr constant;
  if (matchPattern(matrix, m_Constant(&constant)))
    return arith::ConstantOp::create(rewriter, loc, packConstant(constant, transposed, width));
  FlatSymbolRefAttr source = matrix.getDefiningOp<WeightOp>().getGlobalAttr();
  auto type = cast<RankedTensorType>(matrix.getType());
  auto panels =
      RankedTensorType::get({static_cast<int64_t>(llvm::divideCeil(type.getDimSize(transposed ? 0 : 1), width)),
                             type.getDimSize(transposed ? 1 : 0), width},
                            type.getElementType());
  Attribute expression = PackPanelsAttr::get(rewriter.getContext(), source, transposed, width);
  return WeightOp::create(rewriter, loc, panels, globals.get(source.getValue() + "_panels", panels, expression, loc));
}

void addEpilogueInputs(RewriterBase &rewriter, Location loc, const Epilogue &epilogue, Type result, unsigned leading,
                       SmallVectorImpl<Value> &inputs, SmallVectorImpl<int64_t> &elementwise) {
  for (auto [kind, operand] : llvm::zip_equal(epilogue.kinds, epilogue.operands)) {
    if (kind == EpilogueOperand::Full && getElementTypeOrSelf(operand.getType()) == result)
      elementwise.push_back(inputs.size());
    inputs.push_back(flattenOperand(rewriter, loc, operand, kind, leading));
  }
}

Value emitRowProduct(RewriterBase &rewriter, Location loc, const RowProduct &product, func::FuncOp kernel,
                     SmallVector<Value> inputs, ArrayRef<int64_t> elementwise, ArrayRef<RankedTensorType> scratch) {
  castToArguments(rewriter, loc, kernel, inputs);
  unsigned leading = product.leading();
  RankedTensorType type = product.type;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, product.lhs);
  OpFoldResult columns = rewriter.getIndexAttr(product.n);
  if (product.columns)
    columns = product.columns;
  sizes.back() = columns;
  for (unsigned n = 0; n < leading; ++n)
    if (!type.isDynamicDim(n))
      sizes[n] = rewriter.getIndexAttr(type.getDimSize(n));
  OpFoldResult rows = rewriter.getIndexAttr(product.m);
  if (ShapedType::isDynamic(product.m))
    rows = getValueOrCreateConstantIndexOp(rewriter, loc,
                                           multiplySizes(rewriter, loc, ArrayRef(sizes).take_front(leading)));
  Type element = type.getElementType();
  SmallVector<Value> inits;
  auto addInit = [&](OpFoldResult rows, OpFoldResult columns, Type element) {
    inits.push_back(tensor::EmptyOp::create(rewriter, loc, {rows, columns}, element));
  };
  OpFoldResult scratchRows = rows;
  if (auto size = dyn_cast<Value>(rows); size && product.scratchMultiple > 1) {
    Value multiple = arith::ConstantIndexOp::create(rewriter, loc, product.scratchMultiple);
    Value count = ceilDivide(rewriter, loc, size, product.scratchMultiple);
    scratchRows = arith::MulIOp::create(rewriter, loc, count, multiple).getResult();
  }
  for (RankedTensorType part : scratch)
    addInit(part.isDynamicDim(0) ? scratchRows : rewriter.getIndexAttr(part.getDimSize(0)),
            rewriter.getIndexAttr(part.getDimSize(1)), part.getElementType());
  addInit(rows, columns, element);
  KernelOp call = callKernel(rewriter, loc, kernel, inputs, inits, elementwise);
  if (!ShapedType::isDynamic(product.m) && !ShapedType::isDynamic(product.k) && !ShapedType::isDynamic(product.n))
    call->setAttr(AttnDialect::kFlopsAttr, rewriter.getDenseI64ArrayAttr({2 * product.m * product.k * product.n}));
  Value result = fromMatrix(rewriter, loc, call->getResults().back(), type, sizes, leading);
  return castTo(rewriter, loc, result, type);
}

} // namespace attn
