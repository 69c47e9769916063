#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_MERGEPROJECTIONSPASS
#include "passes/Passes.h.inc"

namespace {

/// How far behind a projection its attention is looked for.
constexpr size_t kMaxOpsBehind = 64;

/// With more rows the start of a product costs nothing beside it, and rows of
/// slices that lie further apart make attention slower (1.5 % at 128 rows).
constexpr int64_t kMaxRows = 64;

/// Widths of panels. Weights of whole panels stand side by side without a panel
/// of two of them: each can be replaced, and says what narrowing it loses.
constexpr int64_t kPanelWidths[] = {48, 64};

/// input x weight (+ bias), where only views read the result.
struct Projection {
  linalg::ContractOp contract;
  Value input;
  unsigned weightNumber = 0; // of the contraction's inputs
  GlobalOp weight;
  unsigned weightDim = 0;  // of the weight: the columns
  linalg::GenericOp adder; // of the bias; null for none
  DenseFPElementsAttr bias;
  Value vector; // of an adder that rounds, too: a constant, a weight, or null
  bool rounds() { return adder && !bias; }

  Operation *last() {
    if (adder)
      return adder;
    return contract;
  }
  int64_t columns() const { return cast<RankedTensorType>(contract->getResult(0).getType()).getShape().back(); }
};

/// Whether `value`'s readers are views and attentions, and an attention is
/// among what they lead to: reads a slice of a row as well as a whole one.
bool feedsAttention(Value value) {
  for (Operation *user : value.getUsers())
    if (!isa<AttentionOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp, tensor::CastOp, tensor::DimOp>(user))
      return false;
  unsigned behind = 0;
  auto passesOn = [&](Operation *user) {
    return (isPerElement(user) ||
            isa<tensor::ExtractSliceOp, tensor::InsertSliceOp, tensor::ConcatOp, KvAppendOp>(user)) &&
           behind++ < kMaxOpsBehind;
  };
  return hasUse(value, [](OpOperand &use) { return isa<AttentionOp>(use.getOwner()); }, passesOn);
}

/// The generic that adds a constant vector to the last dimension of `value`
/// and does nothing else.
void matchBias(Projection &projection) {
  Value value = projection.contract.getResult(0);
  auto adder = value.hasOneUse() ? dyn_cast<linalg::GenericOp>(*value.user_begin()) : linalg::GenericOp();
  if (!adder || !isPointwise(adder) || adder.getNumDpsInputs() != 2)
    return;
  unsigned number = adder.getDpsInputOperand(0)->get() == value ? 0 : 1, rank = adder.getNumLoops();
  OpOperand *sum = adder.getDpsInputOperand(number), *vector = adder.getDpsInputOperand(1 - number);
  AffineMap last = AffineMap::get(rank, 0, getAffineDimExpr(rank - 1, adder.getContext()));
  DenseFPElementsAttr bias;
  if (sum->get() != value || !adder.getMatchingIndexingMap(sum).isIdentity() ||
      !adder.getMatchingIndexingMap(adder.getDpsInitOperand(0)).isIdentity() ||
      adder.getMatchingIndexingMap(vector) != last || !matchPattern(vector->get(), m_Constant(&bias)))
    return;
  Block *body = adder.getBody();
  auto add = body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add || body->getOperations().size() != 2)
    return;
  Value left = body->getArgument(number), right = body->getArgument(1 - number);
  if ((add.getLhs() != left || add.getRhs() != right) && (add.getLhs() != right || add.getRhs() != left))
    return;
  projection.adder = adder;
  projection.bias = bias;
}

/// The generic behind a projection of 16 bits: it rounds, and may add a vector first and round again.
void matchRounding(Projection &projection) {
  Value value = projection.contract.getResult(0);
  auto adder = value.hasOneUse() ? dyn_cast<linalg::GenericOp>(*value.user_begin()) : linalg::GenericOp();
  if (!adder || !isPointwise(adder) || adder.getNumDpsInits() != 1 ||
      !adder.getMatchingIndexingMap(adder.getDpsInitOperand(0)).isIdentity() ||
      !llvm::all_of(adder.getBody()->without_terminator(),
                    llvm::IsaPred<arith::AddFOp, arith::ExtFOp, arith::TruncFOp>))
    return;
  Value vector;
  AffineMap last =
      AffineMap::get(adder.getNumLoops(), 0, getAffineDimExpr(adder.getNumLoops() - 1, adder.getContext()));
  for (OpOperand *input : adder.getDpsInputOperands()) {
    AffineMap map = adder.getMatchingIndexingMap(input);
    if (input->get() == value && map.isIdentity())
      continue;
    DenseFPElementsAttr constant;
    if (vector || map != last ||
        (!input->get().getDefiningOp<WeightOp>() && !matchPattern(input->get(), m_Constant(&constant))))
      return;
    vector = input->get();
  }
  projection.adder = adder;
  projection.vector = vector;
}

/// Whether what rounds two projections is one op for both.
bool areAlike(Projection &a, Projection &b) {
  if (!a.rounds() || !b.rounds())
    return a.rounds() == b.rounds();
  auto isWeight = [](Projection &p) { return p.vector && p.vector.getDefiningOp<WeightOp>(); };
  auto element = [](Value value) { return value ? getElementTypeOrSelf(value.getType()) : Type(); };
  return isWeight(a) == isWeight(b) && element(a.vector) == element(b.vector) &&
         element(a.adder->getResult(0)) == element(b.adder->getResult(0)) &&
         a.adder.getIndexingMaps() == b.adder.getIndexingMaps() &&
         OperationEquivalence::isRegionEquivalentTo(&a.adder.getRegion(), &b.adder.getRegion(),
                                                    OperationEquivalence::IgnoreLocations);
}

/// Whether there are so few rows that one product for several counts on a CPU.
bool hasFewRows(RankedTensorType type) {
  int64_t rows = 1;
  for (int64_t size : type.getShape().drop_back()) {
    if (ShapedType::isDynamic(size) || size > kMaxRows)
      return false;
    rows = std::min(rows * size, kMaxRows + 1);
  }
  return rows <= kMaxRows;
}

std::optional<Projection> matchProjection(linalg::ContractOp op, const SymbolTable &symbols, bool anyRows) {
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || !op.hasPureTensorSemantics() || type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1) ||
      !type.getElementType().isF32() || type.getShape().back() == 0 || (!anyRows && !hasFewRows(type)))
    return std::nullopt;
  auto fill = op.getOutputs()[0].getDefiningOp<linalg::FillOp>();
  if (!fill || !matchPattern(fill.getInputs().front(), m_AnyZeroFloat()))
    return std::nullopt;
  Projection projection;
  projection.contract = op;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  AffineExpr columns = maps[2].getResults().back();
  for (unsigned number : {0, 1}) {
    auto weight = op.getInputs()[number].getDefiningOp<WeightOp>();
    std::optional<unsigned> dim = maps[number].getResultPosition(columns);
    // The columns are the weight's alone.
    if (!weight || !dim || maps[number].getNumResults() != 2 || maps[1 - number].getResultPosition(columns))
      continue;
    projection.weight = symbols.lookup<GlobalOp>(weight.getGlobal());
    projection.weightNumber = number;
    projection.weightDim = *dim;
    projection.input = op.getInputs()[1 - number];
  }
  if (!projection.weight)
    return std::nullopt;
  Type element = getElementTypeOrSelf(projection.weight.getType());
  if (getElementTypeOrSelf(projection.input.getType()) != element ||
      !(element.isF32() || (anyRows && (element.isF16() || element.isBF16()))))
    return std::nullopt;
  matchBias(projection);
  if (!projection.adder && anyRows)
    matchRounding(projection);
  if (!feedsAttention(projection.last()->getResult(0)))
    return std::nullopt;
  return projection;
}

/// Projections that one contraction can do: also of one depth.
using Key = std::tuple<Block *, Value, Attribute, unsigned, int64_t>;

bool isOfWholePanels(ArrayRef<Projection> projections) {
  return llvm::any_of(kPanelWidths, [&](int64_t width) {
    return llvm::all_of(projections.drop_back(),
                        [&](const Projection &projection) { return projection.columns() % width == 0; });
  });
}

class Merger {
public:
  Merger(ModuleOp module, bool anyRows)
      : module(module), anyRows(anyRows), symbols(module), derived(module, symbols), rewriter(module.getContext()) {
    for (GlobalOp global : module.getOps<GlobalOp>())
      if (isa<ConcatAttr>(global.getExpression()))
        concats.try_emplace(global.getExpression(), global);
  }

  void run() {
    llvm::MapVector<Key, SmallVector<Projection>> groups;
    module.walk([&](linalg::ContractOp op) {
      std::optional<Projection> found = matchProjection(op, symbols, anyRows);
      if (!found)
        return;
      int64_t depth = cast<RankedTensorType>(found->weight.getType()).getDimSize(1 - found->weightDim);
      auto &group = groups[{op->getBlock(), found->input, op.getIndexingMapsAttr(), found->weightNumber, depth}];
      if (group.empty() || areAlike(group.front(), *found))
        group.push_back(*found);
    });
    groups.remove_if(
        [&](auto &group) { return group.second.size() < 2 || (!anyRows && !isOfWholePanels(group.second)); });
    findOtherReaders(groups.getArrayRef());
    for (auto &[key, projections] : groups)
      if (llvm::none_of(projections, [&](Projection &projection) { return shared.contains(projection.weight); }))
        merge(projections);
  }

private:
  void findOtherReaders(ArrayRef<std::pair<Key, SmallVector<Projection>>> groups);
  void merge(MutableArrayRef<Projection> projections);
  GlobalOp mergeWeights(MutableArrayRef<Projection> projections, int64_t columns);
  Value addBias(MutableArrayRef<Projection> projections, Value sum, Value init);
  Value joinVectors(MutableArrayRef<Projection> projections, int64_t columns);

  ModuleOp module;
  bool anyRows;
  SymbolTable symbols;
  DerivedGlobals derived;
  IRRewriter rewriter;
  DenseMap<Attribute, GlobalOp> concats;
  llvm::SmallPtrSet<Operation *, 16> shared; // weights that would be stored once more
};

Attribute makeConcat(ArrayRef<Projection> projections) {
  SmallVector<FlatSymbolRefAttr> sources;
  for (Projection projection : projections)
    sources.push_back(FlatSymbolRefAttr::get(projection.weight));
  return ConcatAttr::get(sources.front().getContext(), sources, projections.front().weightDim);
}

/// Fills `shared`: another entry may read a weight by itself, or beside others.
void Merger::findOtherReaders(ArrayRef<std::pair<Key, SmallVector<Projection>>> groups) {
  llvm::SmallPtrSet<Operation *, 16> merged;
  DenseMap<Operation *, Attribute> concatOf;
  for (const auto &[key, projections] : groups) {
    Attribute concat = makeConcat(projections);
    for (Projection projection : projections) {
      merged.insert(projection.contract);
      if (concatOf.try_emplace(projection.weight, concat).first->second != concat)
        shared.insert(projection.weight);
    }
  }
  module.walk([&](WeightOp op) {
    if (llvm::any_of(op->getUsers(), [&](Operation *user) { return !merged.contains(user); }))
      shared.insert(symbols.lookup(op.getGlobal()));
  });
  for (GlobalOp global : module.getOps<GlobalOp>())
    global.getExpression().walk([&](FlatSymbolRefAttr source) { shared.insert(symbols.lookup(source.getValue())); });
}

GlobalOp Merger::mergeWeights(MutableArrayRef<Projection> projections, int64_t columns) {
  Projection &first = projections.front();
  std::string name;
  for (Projection &projection : projections)
    name += (name.empty() ? "" : "+") + projection.weight.getSymName().str();
  Attribute expression = makeConcat(projections);
  GlobalOp &global = concats[expression];
  if (global)
    return global;
  auto type = cast<RankedTensorType>(first.weight.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[first.weightDim] = columns;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointAfter(projections.back().weight);
  global = GlobalOp::create(rewriter, first.weight.getLoc(), name, type.clone(shape), expression);
  symbols.insert(global);
  return global;
}

/// What the adders that round add, one vector behind the other.
Value Merger::joinVectors(MutableArrayRef<Projection> projections, int64_t columns) {
  Location loc = projections.front().adder.getLoc();
  auto type = RankedTensorType::get({columns}, getElementTypeOrSelf(projections.front().vector.getType()));
  SmallVector<APFloat> values;
  SmallVector<FlatSymbolRefAttr> parts;
  std::string name;
  for (Projection &projection : projections) {
    DenseFPElementsAttr constant;
    if (matchPattern(projection.vector, m_Constant(&constant))) {
      llvm::append_range(values, constant.getValues<APFloat>());
      continue;
    }
    parts.push_back(projection.vector.getDefiningOp<WeightOp>().getGlobalAttr());
    name += (name.empty() ? "" : "+") + parts.back().getValue().str();
  }
  if (parts.empty())
    return arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(type, values));
  return WeightOp::create(rewriter, loc, type,
                          derived.get(name, type, ConcatAttr::get(module.getContext(), parts, 0), loc));
}

/// sum + the vectors, one after the other.
Value Merger::addBias(MutableArrayRef<Projection> projections, Value sum, Value init) {
  auto known = llvm::find_if(projections, [](Projection &projection) { return projection.adder; });
  if (known == projections.end())
    return sum;
  // x + -0.0 is x, whatever x is.
  APFloat nothing = APFloat::getZero(APFloat::IEEEsingle(), /*Negative=*/true);
  SmallVector<APFloat> values;
  for (Projection &projection : projections)
    if (projection.bias)
      llvm::append_range(values, projection.bias.getValues<APFloat>());
    else
      values.append(projection.columns(), nothing);
  Location loc = known->adder.getLoc();
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, rewriter.getF32Type());
  Value bias = arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(type, values));
  int64_t rank = cast<RankedTensorType>(sum.getType()).getRank();
  AffineMap all = rewriter.getMultiDimIdentityMap(rank),
            last = AffineMap::get(rank, 0, rewriter.getAffineDimExpr(rank - 1));
  auto add = linalg::GenericOp::create(rewriter, loc, sum.getType(), ValueRange{sum, bias}, init,
                                       ArrayRef<AffineMap>{all, last, all},
                                       SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
                                       [](OpBuilder &b, Location at, ValueRange elements) {
                                         Value result = arith::AddFOp::create(b, at, elements[0], elements[1]);
                                         linalg::YieldOp::create(b, at, result);
                                       });
  return add->getResult(0);
}

void Merger::merge(MutableArrayRef<Projection> projections) {
  Projection &first = projections.front();
  linalg::ContractOp contract = first.contract;
  rewriter.setInsertionPoint(contract);
  SmallVector<Location> locations;
  int64_t columns = 0;
  for (Projection &projection : projections) {
    locations.push_back(projection.contract.getLoc());
    columns += projection.columns();
  }
  Location loc = rewriter.getFusedLoc(locations);
  // As it was made, where that is known: sizes of one origin stay one value.
  SmallVector<OpFoldResult> sizes = madeSizes(rewriter, loc, contract.getOutputs()[0]);
  sizes.back() = rewriter.getIndexAttr(columns);
  linalg::GenericOp adder = first.rounds() ? first.adder : linalg::GenericOp();
  Type element = adder ? getElementTypeOrSelf(adder->getResult(0).getType()) : rewriter.getF32Type();
  Value empty = emptyTensor(rewriter, loc, sizes, element);
  Value zeros = filledTensor(rewriter, loc, sizes, rewriter.getF32Type(), 0);

  GlobalOp global = mergeWeights(projections, columns);
  SmallVector<Value> inputs(2, first.input);
  inputs[first.weightNumber] =
      WeightOp::create(rewriter, loc, cast<RankedTensorType>(global.getType()), FlatSymbolRefAttr::get(global));
  Value merged =
      linalg::ContractOp::create(rewriter, loc, zeros.getType(), inputs, zeros, contract.getIndexingMapsAttr())
          ->getResult(0);
  if (adder) {
    SmallVector<Value> operands;
    for (Value input : adder.getDpsInputs())
      operands.push_back(input == contract->getResult(0) ? merged : joinVectors(projections, columns));
    operands.push_back(empty);
    merged = clone(rewriter, adder, TypeRange{empty.getType()}, operands)->getResult(0);
  } else {
    merged = addBias(projections, merged, empty);
  }

  int64_t offset = 0, dim = sizes.size() - 1;
  for (Projection &projection : projections) {
    Operation *last = projection.last();
    Value slice = sliceAlong(rewriter, last->getLoc(), merged, dim, rewriter.getIndexAttr(offset),
                             rewriter.getIndexAttr(projection.columns()));
    offset += projection.columns();
    rewriter.replaceOp(last, castTo(rewriter, last->getLoc(), slice, last->getResult(0).getType()));
    if (projection.adder)
      rewriter.eraseOp(projection.contract);
  }
  remark::passed(loc, remark::RemarkOpts::name("Projections").category("attn-merge-projections"))
      << remark::add("{0} projections of one tensor in one product", projections.size());
}

struct MergeProjectionsPass : impl::MergeProjectionsPassBase<MergeProjectionsPass> {
  using MergeProjectionsPassBase::MergeProjectionsPassBase;
  void runOnOperation() override { Merger(getOperation(), anyRows).run(); }
};

} // namespace
} // namespace attn
