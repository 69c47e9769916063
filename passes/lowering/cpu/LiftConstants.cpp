#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

namespace attn {
#define GEN_PASS_DEF_LIFTCONSTANTSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// An op and the uses of constants in its regions that can be operands, in their order.
struct Candidate {
  Operation *op;
  SmallVector<OpOperand *> uses;
};

/// What `value` is of those types that scales and zero points have, or null.
TypedAttr constantOf(Value value) {
  Type type = value.getType();
  TypedAttr constant;
  bool isLifted = type.isF32() || type.isF64() || type.isInteger(32);
  return isLifted && matchPattern(value, m_Constant(&constant)) ? constant : TypedAttr();
}

/// Whether the scores of `op` are its products times a constant: a kernel has that in the queries.
bool isPlainScale(AttentionOp op) {
  return op.getScore().empty() || llvm::all_of(op.getScore().front(), [](Operation &o) {
           return isa<arith::MulFOp, arith::ConstantOp, YieldOp>(o);
         });
}

/// Writes what two ops must agree in to be the same code but for their constants.
class Signature {
public:
  explicit Signature(Operation *op) : os(text) {
    candidate.op = op;
    // Not what is noted at an op for reports.
    os << op->getName() << op->getPropertiesAsAttribute();
    for (Value operand : op->getOperands())
      os << operand.getType() << ',';
    auto attention = dyn_cast<AttentionOp>(op);
    for (Region &region : op->getRegions()) {
      keepsConstants = attention && &region == &attention.getActivation(); // it takes no captures
      write(region);
    }
  }

  std::string text;
  Candidate candidate;

private:
  void write(Region &region) {
    os << '{';
    for (Block &block : region) {
      for (BlockArgument argument : block.getArguments())
        number(argument);
      for (Operation &op : block)
        write(op);
    }
    os << '}';
  }

  void write(Operation &op) {
    if (op.getNumResults() == 1 && constantOf(op.getResult(0)))
      return;
    os << op.getName() << op.getAttrDictionary();
    for (OpOperand &use : op.getOpOperands()) {
      if (TypedAttr constant = constantOf(use.get())) {
        if (keepsConstants)
          os << constant;
        else
          candidate.uses.push_back(&use);
        os << use.get().getType() << "c,";
      } else if (auto known = numbers.find(use.get()); known != numbers.end()) {
        os << known->second << ',';
      } else {
        os << use.get().getAsOpaquePointer() << ',';
      }
    }
    for (Value result : op.getResults())
      number(result);
    for (Region &region : op.getRegions())
      write(region);
    os << ';';
  }

  void number(Value value) {
    os << value.getType();
    numbers.try_emplace(value, numbers.size());
  }

  llvm::raw_string_ostream os;
  llvm::DenseMap<Value, unsigned> numbers;
  bool keepsConstants = false; ///< of the region at hand
};

/// The uses of the members of a group, as numbers of one of them, that have the same constant in each member; those
/// whose constant all members agree in are left out.
SmallVector<SmallVector<size_t>> findDifferences(ArrayRef<Candidate> group) {
  SmallVector<SmallVector<size_t>> classes;
  auto agree = [&](size_t x, size_t y) {
    return llvm::all_of(group, [&](const Candidate &member) {
      return constantOf(member.uses[x]->get()) == constantOf(member.uses[y]->get());
    });
  };
  for (size_t n = 0; n < group.front().uses.size(); ++n) {
    bool isShared = llvm::all_of(group, [&](const Candidate &member) {
      return constantOf(member.uses[n]->get()) == constantOf(group.front().uses[n]->get());
    });
    if (isShared)
      continue;
    auto known = llvm::find_if(classes, [&](const SmallVector<size_t> &uses) { return agree(uses.front(), n); });
    if (known != classes.end())
      known->push_back(n);
    else
      classes.push_back({n});
  }
  return classes;
}

/// Gives an attention one more capture of rank 0, and returns its element in each region.
SmallVector<Value> addCapture(AttentionOp op, Value scalar) {
  unsigned position = op->getNumOperands() - op.getMaskOperands().size();
  SmallVector<Attribute> maps(op.getIndexingMaps().getValue());
  unsigned numDims = cast<AffineMapAttr>(maps.front()).getValue().getNumDims();
  auto map = AffineMap::get(numDims, 0, op.getContext());
  op.getCapturesMutable().append(scalar);
  maps.insert(maps.begin() + position, AffineMapAttr::get(map));
  op.setIndexingMapsAttr(ArrayAttr::get(op.getContext(), maps));
  SmallVector<Value> elements;
  for (Region *region : {&op.getScore(), &op.getWeight(), &op.getMasked()})
    if (!region->empty())
      elements.push_back(region->front().addArgument(getElementTypeOrSelf(scalar.getType()), op.getLoc()));
  return elements;
}

/// Gives an elementwise op one more input of rank 0, and returns its element.
SmallVector<Value> addInput(linalg::GenericOp op, Value scalar) {
  unsigned position = op.getNumDpsInputs();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  maps.insert(maps.begin() + position, AffineMap::get(op.getNumLoops(), 0, op.getContext()));
  op.getInputsMutable().append(scalar);
  op.setIndexingMapsAttr(Builder(op.getContext()).getAffineMapArrayAttr(maps));
  return {op.getBody()->insertArgument(position, getElementTypeOrSelf(scalar.getType()), op.getLoc())};
}

void lift(const Candidate &member, ArrayRef<size_t> uses) {
  OpBuilder b(member.op);
  TypedAttr constant = constantOf(member.uses[uses.front()]->get());
  Value scalar = arith::ConstantOp::create(
      b, member.op->getLoc(),
      DenseElementsAttr::get(RankedTensorType::get({}, constant.getType()), Attribute(constant)));
  auto generic = dyn_cast<linalg::GenericOp>(member.op);
  SmallVector<Value> elements = generic ? addInput(generic, scalar) : addCapture(cast<AttentionOp>(member.op), scalar);
  for (size_t use : uses)
    for (Value element : elements)
      if (element.getParentRegion()->isAncestor(member.uses[use]->getOwner()->getParentRegion()))
        member.uses[use]->set(element);
  // A kernel's name tells what stands in its regions, used or not.
  member.op->walk([](arith::ConstantOp constant) {
    if (constant.use_empty())
      constant.erase();
  });
}

struct LiftConstantsPass : attn::impl::LiftConstantsPassBase<LiftConstantsPass> {
  void runOnOperation() override {
    std::map<std::string, SmallVector<Candidate>> groups;
    getOperation().walk([&](Operation *op) {
      auto generic = dyn_cast<linalg::GenericOp>(op);
      auto attention = dyn_cast<AttentionOp>(op);
      bool isElementwise =
          generic && generic.hasPureTensorSemantics() && generic.getNumParallelLoops() == generic.getNumLoops();
      if (!isElementwise && !(attention && !isPlainScale(attention)))
        return;
      Signature signature(op);
      if (!signature.candidate.uses.empty())
        groups[signature.text].push_back(std::move(signature.candidate));
    });
    for (auto &[text, group] : groups)
      for (ArrayRef<size_t> uses : findDifferences(group))
        for (const Candidate &member : group)
          lift(member, uses);
  }
};

} // namespace
