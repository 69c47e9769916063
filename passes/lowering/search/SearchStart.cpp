// What a search begins with; SearchLoop.cpp has the loop.
#include "dialects/attn/LoopOps.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/search/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

/// Steps that histories have room for at first.
static constexpr int64_t kFirstSteps = 32;
static constexpr int64_t kDynamic = ShapedType::kDynamic;

/// `tensor` with each of its rows, dimension `dim`, `width` times.
Value SearchLoop::expandRows(Value tensor, int64_t dim, RankedTensorType type) {
  if (width == 1)
    return tensor;
  int64_t rank = type.getRank();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor), wide = sizes;
  wide.insert(wide.begin() + dim + 1, b.getIndexAttr(width));
  Value copies =
      elementwise(b, loc, wide, type.getElementType(), tensor, b.getMultiDimIdentityMap(rank + 1).dropResult(dim + 1),
                  [](OpBuilder &, Location, ValueRange args) { return args[0]; });
  SmallVector<ReassociationIndices> groups;
  for (int64_t n = 0; n <= rank; ++n) {
    if (n == dim + 1)
      groups.back().push_back(n);
    else
      groups.push_back({n});
  }
  return castTo(tensor::CollapseShapeOp::create(b, loc, copies, groups), type);
}

void SearchLoop::takeArguments() {
  batch = sizeOf(op.getFirst(), 0);
  rows = width == 1 ? batch : arith::MulIOp::create(b, loc, batch, index(width)).getResult();
  auto init = op.getInits().begin();
  for (auto [n, source] : llvm::enumerate(op.getSources())) {
    Argument &argument = arguments.emplace_back();
    argument.source = source;
    argument.rowsDim = op.getBatchDims()[n];
    argument.growDim = op.getGrowDims()[n];
    argument.type = cast<RankedTensorType>(step.getArgumentTypes()[n]);
    if (source == SearchOp::kToken) {
      argument.sizes.push_back(rows);
      if (argument.type.getRank() == 2)
        argument.sizes.push_back(b.getIndexAttr(1));
      continue;
    }
    Value given = *init++;
    if (argument.rowsDim >= 0) {
      require(sizeOf(given, argument.rowsDim), batch, "search: a state has {0} rows, the tokens have {1}");
      given = expandRows(given, argument.rowsDim, argument.type);
    }
    argument.init = given;
    // A step may say of how many rows it is: then slices of its states say so, too.
    for (int64_t dim = 0; dim < argument.type.getRank(); ++dim)
      argument.sizes.push_back(dim == argument.rowsDim && argument.type.isDynamicDim(dim)
                                   ? OpFoldResult(rows)
                                   : tensor::getMixedSize(b, loc, given, dim));
  }
  requireEqualNames(/*inBody=*/false);
}

/// The step takes dimensions of one name for one size; its caller has to make sure: before the loop, and in each step
/// where one of both grows.
void SearchLoop::requireEqualNames(bool inBody) {
  llvm::StringMap<std::pair<Value, bool>> known;
  for (auto [n, argument] : llvm::enumerate(arguments)) {
    auto names = step.getArgAttrOfType<ArrayAttr>(n, AttnDialect::kDimsAttr);
    if (!names || static_cast<int64_t>(names.size()) != argument.type.getRank())
      continue;
    for (auto [dim, attr] : llvm::enumerate(names)) {
      auto name = dyn_cast<StringAttr>(attr);
      if (!name || name.empty() || !argument.type.isDynamicDim(dim))
        continue;
      bool grows = argument.growDim == static_cast<int64_t>(dim);
      Value size = inBody && grows ? argument.length : value(argument.sizes[dim]);
      auto [at, fresh] = known.try_emplace(name.getValue(), size, grows);
      if (!fresh && inBody == (grows || at->second.second))
        require(at->second.first, size,
                ("search: dimension '" + name.getValue() + "' of the step has sizes {0} and {1}" +
                 (inBody ? "; what grows with a state has to be one, too (--state=INPUT:OUTPUT); what has this "
                           "name by mistake loses it with --shape=INPUT:?x*"
                         : ""))
                    .str());
    }
  }
}

size_t SearchLoop::carry(Value init) {
  inits.push_back(init);
  return inits.size() - 1;
}

void SearchLoop::startLoop() {
  auto number = [&](Type element) { return RankedTensorType::get({kDynamic, width}, element); };
  Type f32 = b.getF32Type(), i64 = b.getI64Type();
  OpFoldResult columns = b.getIndexAttr(width);
  Value zero = index(0);
  go = carry(arith::ConstantIntOp::create(b, loc, 1, 1));
  steps = carry(zero);
  auto ofRows = RankedTensorType::get({kDynamic}, i64);
  Value start = op.startsWithScores() ? Value() : expandRows(op.getFirst(), 0, ofRows);
  tokens = carry(start ? castTo(start, ofRows) : fill(ofRows, {rows}, b.getI64IntegerAttr(0)));
  // Of `width` equal hypotheses all but one are none.
  live =
      carry(elementwise(b, loc, {batch, columns}, f32, {}, {}, [&](OpBuilder &body, Location at, ValueRange) -> Value {
        Value k = linalg::IndexOp::create(body, at, 1), none = arith::ConstantIndexOp::create(body, at, 0);
        Value isFirst = arith::CmpIOp::create(body, at, arith::CmpIPredicate::eq, k, none);
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        return arith::SelectOp::create(body, at, isFirst, floatConstant(body, at, f32, 0),
                                       floatConstant(body, at, f32, -kInfinity));
      }));
  best = carry(fill(number(f32), {batch, columns}, b.getF32FloatAttr(-std::numeric_limits<float>::infinity())));
  info = carry(fill(RankedTensorType::get({kDynamic, width, 3}, i64), {batch, columns, b.getIndexAttr(3)},
                    b.getI64IntegerAttr(0)));
  open = carry(fill(ofRows, {batch}, b.getI64IntegerAttr(1)));
  auto makeHistory = [&](Type element, ArrayRef<OpFoldResult> row) {
    SmallVector<int64_t> shape(row.size() + 1, kDynamic);
    auto type = RankedTensorType::get(shape, element);
    Value room = index(kFirstSteps);
    SmallVector<Value> sizes{room};
    for (OpFoldResult size : row)
      sizes.push_back(value(size));
    Value buffer = tensor::EmptyOp::create(b, loc, type, sizes);
    return GrowOp::create(b, loc, type, buffer, room, 0).getResult();
  };
  history = carry(makeHistory(i64, {rows}));
  if (op.isBeam()) {
    parents = carry(makeHistory(i64, {rows}));
    kin = carry(firstKin());
  }
  if (op.getAlignmentResult())
    alignments = carry(makeHistory(f32, {rows, alignmentSize()}));
  carrySequence();
  if (spec.coverage)
    coverage =
        carry(fill(RankedTensorType::get({kDynamic, kDynamic}, f32), {rows, alignmentSize()}, b.getF32FloatAttr(0)));
  for (Argument &argument : arguments) {
    if (argument.source == SearchOp::kToken || argument.source == SearchOp::kConstant)
      continue;
    if (argument.growDim < 0) {
      argument.carried = carry(argument.init);
      continue;
    }
    Value size = value(argument.sizes[argument.growDim]);
    argument.carried = carry(GrowOp::create(b, loc, argument.type, argument.init, size, argument.growDim));
    carry(size);
  }
}

/// How many positions of the source an alignment has: the dimension of an
/// argument that has its name, if the type does not tell.
OpFoldResult SearchLoop::alignmentSize() {
  unsigned number = *op.getAlignmentResult();
  auto type = cast<RankedTensorType>(step.getResultTypes()[number]);
  if (!type.isDynamicDim(1))
    return b.getIndexAttr(type.getDimSize(1));
  auto names = step.getResultAttrOfType<ArrayAttr>(number, AttnDialect::kDimsAttr);
  auto name = names && names.size() == 2 ? dyn_cast<StringAttr>(names[1]) : StringAttr();
  for (auto [n, argument] : llvm::enumerate(arguments))
    if (auto dims = step.getArgAttrOfType<ArrayAttr>(n, AttnDialect::kDimsAttr); dims && name && !name.empty())
      for (auto [dim, attr] : llvm::enumerate(dims))
        if (attr == name && dim < argument.sizes.size() && static_cast<int64_t>(dim) != argument.growDim)
          return argument.sizes[dim];
  return {};
}
