#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/RegionWriter.h"
#include "passes/graph/masks/MaskMining.h"
#include "passes/graph/masks/SimplifyRegions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include <limits>
#include <memory>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_OPENMASKSPASS
#include "passes/Passes.h.inc"

namespace {

using A = AttentionOp;

/// Terms that a score region is proved to apply, but stored masks.
struct Proved {
  unsigned places = 0;
  bool hasOther = false;

  static Proved of(AttentionOp op) {
    ProvedMask mask = proveMask(op, /*takesFinite=*/true);
    Proved proved{0, mask.hasOther};
    for (const ProvedTerm &term : mask.terms)
      proved.places += !isa<DenseMaskAttr>(term.term);
    return proved;
  }
};

/// Makes of one attention another one, in whose score region a tensor is
/// computed that the first one reads.
class MaskOpener {
public:
  MaskOpener(AttentionOp op, IRRewriter &rewriter)
      : op(op), rewriter(rewriter), loc(op.getLoc()), parts(op.getParts()),
        nextCapture(op.getNumOperands() - parts.maskOperands.size()), miss(Miss{"", UnknownLoc::get(op.getContext())}) {
  }

  /// The mask operand of dense term `term`; null, and nothing changed, where
  /// no more is proved then.
  AttentionOp openDense(unsigned term, unsigned operand);
  AttentionOp openCapture(unsigned capture);

private:
  bool writeElement(Value tensor, AffineMap map);
  bool isDim(ArrayRef<unsigned> atoms, std::optional<unsigned> &dim) const;
  AttentionOp create();
  Value placeElement(OpBuilder &b, Block &block);
  AttentionOp keepIfProved(AttentionOp to);

  AttentionOp op;
  IRRewriter &rewriter;
  Location loc;
  AttentionParts parts;
  unsigned nextCapture; ///< where the map of a new capture goes
  Miss miss;
  Atoms dims[4];
  AttentionMatch match;
  SmallVector<unsigned> used;
  std::unique_ptr<RegionWriter> writer;
  Value element; ///< in the region of `writer`
};

bool MaskOpener::isDim(ArrayRef<unsigned> atoms, std::optional<unsigned> &dim) const {
  dim = std::nullopt;
  for (auto [n, loop] : llvm::enumerate(dims))
    if (!atoms.empty() && ArrayRef<unsigned>(loop) == atoms)
      dim = n;
  return atoms.empty() || dim;
}

/// Writes how an element of `tensor`, read through `map`, is computed, and adds
/// what that reads to the captures.
bool MaskOpener::writeElement(Value tensor, AffineMap map) {
  match.computeType = cast<FloatType>(op.getScore().front().getArgument(0).getType());
  for (unsigned dim : {A::B, A::H, A::I, A::J}) {
    bool known = false;
    for (auto [n, operand] : llvm::enumerate(op.getMappedOperands()))
      for (auto [k, expr] : llvm::enumerate(op.getMap(n).getResults()))
        if (!known && expr == rewriter.getAffineDimExpr(dim)) {
          dims[dim] = match.space.add(Extent::of(operand, k));
          known = true;
        }
  }
  match.keys = dims[A::J];
  match.value.access = {dims[A::B], dims[A::H], dims[A::J]};
  Access access;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim && expr != rewriter.getAffineConstantExpr(0))
      return false;
    access.push_back(dim ? dims[dim.getPosition()] : Atoms());
  }
  writer = std::make_unique<RegionWriter>(match, op.getResult(), "", used, miss);
  FailureOr<Value> scalar = writer->writeElement(tensor, access);
  if (failed(scalar) || isa<BlockArgument>(*scalar))
    return false;
  element = *scalar;
  for (Atoms &dim : dims)
    match.space.resolve(dim);
  std::optional<unsigned> dim;
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    if (!isDim(atoms, dim))
      return false;
    if (dim)
      index.setDim(*dim);
  }
  SmallVector<AffineMap> maps;
  for (AttentionMatch::Operand &capture : match.captures) {
    match.space.resolve(capture.access);
    SmallVector<AffineExpr> exprs;
    for (const Atoms &atoms : capture.access) {
      if (!isDim(atoms, dim))
        return false;
      exprs.push_back(dim ? rewriter.getAffineDimExpr(*dim) : rewriter.getAffineConstantExpr(0));
    }
    maps.push_back(AffineMap::get(A::kDims, 0, exprs, op.getContext()));
  }
  rewriter.setInsertionPoint(op);
  for (auto [capture, map] : llvm::zip_equal(match.captures, maps)) {
    Value value = capture.value;
    if (!isa<RankedTensorType>(value.getType()))
      value = scalarTensor(rewriter, loc, value);
    parts.captures.push_back(value);
    parts.maps.insert(parts.maps.begin() + nextCapture++, map);
  }
  return true;
}

/// The attention of `parts`, with the regions of the old one.
AttentionOp MaskOpener::create() {
  rewriter.setInsertionPoint(op);
  auto to = AttentionOp::create(rewriter, loc, parts);
  for (auto [from, into] : llvm::zip_equal(op->getRegions(), to->getRegions())) {
    IRMapping mapping;
    from.cloneInto(&into, mapping);
    if (into.empty() || &into == &to.getActivation())
      continue;
    for (size_t n = op.getCaptures().size(); n != parts.captures.size(); ++n)
      into.front().addArgument(getElementTypeOrSelf(parts.captures[n]), loc);
  }
  return to;
}

/// The written element again, in `block`, a score region.
Value MaskOpener::placeElement(OpBuilder &b, Block &block) {
  IRMapping mapping;
  Block &from = writer->getBlock();
  for (auto [argument, capture] : llvm::zip_equal(from.getArguments().drop_front(), used))
    mapping.map(argument, block.getArgument(1 + op.getCaptures().size() + capture));
  DenseSet<Operation *> still; // indices of dimensions of size 1
  for (auto &[index, atoms] : match.indices)
    if (atoms.empty())
      still.insert(index);
  for (Operation &inner : from) {
    if (still.contains(&inner))
      mapping.map(inner.getResult(0), arith::ConstantIndexOp::create(b, loc, 0).getResult());
    else
      b.clone(inner, mapping);
  }
  return mapping.lookup(element);
}

AttentionOp MaskOpener::keepIfProved(AttentionOp to) {
  simplifyRegions(rewriter, to);
  Proved before = Proved::of(op), after = Proved::of(to);
  if (after.places > before.places && (before.hasOther || !after.hasOther)) {
    rewriter.replaceOp(op, to->getResults());
    return to;
  }
  rewriter.eraseOp(to);
  return {};
}

AttentionOp MaskOpener::openDense(unsigned term, unsigned operand) {
  if (!writeElement(op.getMaskOperands()[operand], op.getMaskMap(operand)))
    return {};
  parts.mask.erase(parts.mask.begin() + term);
  parts.maskOperands.erase(parts.maskOperands.begin() + operand);
  parts.maps.erase(parts.maps.begin() + nextCapture + operand);
  AttentionOp to = create();
  Block &block = to.getScore().front();
  OpBuilder b(block.getTerminator());
  Value stored = placeElement(b, block), score = block.getTerminator()->getOperand(0);
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(stored.getType()));
  Value shown = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, stored, zero);
  Value hidden = floatConstant(b, loc, cast<FloatType>(score.getType()), -std::numeric_limits<double>::infinity());
  block.getTerminator()->setOperand(0, arith::SelectOp::create(b, loc, shown, score, hidden));
  return keepIfProved(to);
}

AttentionOp MaskOpener::openCapture(unsigned capture) {
  for (Region *region : {&op.getWeight(), &op.getMasked()})
    if (!region->empty() && !region->front().getArgument(1 + capture).use_empty())
      return {};
  if (op.getScore().front().getArgument(1 + capture).use_empty() ||
      !writeElement(op.getCaptures()[capture], op.getCaptureMap(capture)))
    return {};
  AttentionOp to = create();
  Block &block = to.getScore().front();
  OpBuilder b = OpBuilder::atBlockBegin(&block);
  block.getArgument(1 + capture).replaceAllUsesWith(placeElement(b, block));
  return keepIfProved(to);
}

/// The attention with one more of its masks computed in its region, or null.
AttentionOp openOne(AttentionOp op, IRRewriter &rewriter) {
  unsigned operand = 0;
  for (auto [term, attribute] : llvm::enumerate(op.getMask())) {
    if (isa<DenseMaskAttr>(attribute))
      if (AttentionOp to = MaskOpener(op, rewriter).openDense(term, operand))
        return to;
    operand += takesMaskOperand(attribute);
  }
  for (size_t capture = 0; capture != op.getCaptures().size(); ++capture)
    if (AttentionOp to = MaskOpener(op, rewriter).openCapture(capture))
      return to;
  return {};
}

struct OpenMasksPass : impl::OpenMasksPassBase<OpenMasksPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (AttentionOp op : collect<AttentionOp>(getOperation()))
      while (op && canTakeTerms(op))
        op = openOne(op, rewriter);
  }
};

} // namespace
} // namespace attn
