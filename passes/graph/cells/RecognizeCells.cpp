#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/graph/cells/CellBuilder.h"
#include "passes/graph/cells/CellMatch.h"
#include "passes/graph/element/AssumeRequired.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RECOGNIZECELLSPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether a loop around `argument`, one of its block arguments, carries `next` to it from a round to the next.
bool isCarried(Value argument, Value next) {
  auto carried = dyn_cast<BlockArgument>(argument);
  Operation *loop = carried ? carried.getOwner()->getParentOp() : nullptr;
  if (auto counted = dyn_cast_or_null<scf::ForOp>(loop)) {
    OpOperand *yielded = counted.getTiedLoopYieldedValue(carried);
    return yielded && rootOf(yielded->get()) == next;
  }
  auto whileOp = dyn_cast_or_null<scf::WhileOp>(loop);
  if (!whileOp)
    return false;
  unsigned number = carried.getArgNumber();
  if (carried.getOwner() == whileOp.getAfterBody()) {
    auto passed = dyn_cast<BlockArgument>(rootOf(whileOp.getConditionOp().getArgs()[number]));
    if (!passed || passed.getOwner() != whileOp.getBeforeBody())
      return false;
    number = passed.getArgNumber();
  }
  return rootOf(whileOp.getYieldOp().getOperand(number)) == next;
}

struct RecognizeCellsPass : impl::RecognizeCellsPassBase<RecognizeCellsPass> {
  void runOnOperation() override {
    assumeRequiredSizes(getOperation());
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      bool isCell = false;
      for (bool splitInputs : {false, true})
        if (std::optional<CellMatch> found = matchCell(op, splitInputs)) {
          findProducts(*found);
          isCell = true;
        }
      if (isCell)
        ops.push_back(op);
    });
    findRecurrences();
    if (ops.empty())
      return;
    CellBuilder builder(getOperation());
    // Each is matched again: cells before it are layers by now. Inputs side by side stay one where they can.
    for (linalg::LinalgOp op : ops)
      if (build(op, builder, /*splitInputs=*/false) || build(op, builder, /*splitInputs=*/true))
        remark::passed(op.getLoc(), remark::RemarkOpts::name("Recurrent").category("attn-recognize-cells"))
            << "a step of a recurrent layer";
    for (auto function : getOperation().getOps<FunctionOpInterface>())
      (void)runRegionDCE(builder.getRewriter(), function->getRegions());
  }

private:
  bool build(linalg::LinalgOp op, CellBuilder &builder, bool splitInputs) {
    std::optional<CellMatch> found = matchCell(op, splitInputs);
    std::optional<Value> state = found ? findState(*found) : std::nullopt;
    return state && isFree(*found) && builder.build(*found, *state);
  }

  /// Notes the products of the first gate with what may be a state.
  void findProducts(const CellMatch &cell) {
    for (const GateTerm &term : cell.gates[0].terms)
      if (term.weight && cell.units == term.size)
        products[cell.result->getResult(0)].push_back(term);
  }

  /// The matrices that meet a state which a product with the same matrix has made.
  void findRecurrences() {
    for (const auto &[next, terms] : products)
      for (const GateTerm &term : terms)
        for (const GateTerm &earlier : products.lookup(rootOf(term.input)))
          if (term.hasWeightOf(earlier) && !isRecurrence(term))
            recurrences.push_back(term);
  }

  bool isRecurrence(const GateTerm &term) {
    return llvm::any_of(recurrences, [&](const GateTerm &other) { return other.hasWeightOf(term); });
  }

  /// How well `term`, of the first gate, shows that its input is the old state: 2 where nothing else can be.
  unsigned rate(const CellMatch &cell, const GateTerm &term) {
    Value input = rootOf(term.input);
    if (isCarried(input, cell.result->getResult(0)) || isRecurrence(term))
      return 2;
    return isa<BlockArgument>(input) ? 1 : 0;
  }

  /// The old state: an input of the right width.
  std::optional<Value> findState(const CellMatch &cell) {
    if (cell.cell == RecurrentLayer::Gru)
      return cell.before;
    std::optional<Value> best;
    unsigned highest = 0;
    for (const GateTerm &term : cell.gates[0].terms) {
      unsigned rating = rate(cell, term);
      if (!term.weight || term.size != cell.units || (best && rating < highest))
        continue;
      best = rootOf(term.input);
      highest = rating;
    }
    // A sum of two products under a function may be anything else.
    if (cell.cell == RecurrentLayer::Rnn && highest < 2)
      return std::nullopt;
    return best;
  }

  /// Whether nothing that goes into the cell is computed from what comes out, and nothing else reads its gates.
  static bool isFree(CellMatch &cell) {
    Operation *first = cell.memory ? cell.memory : cell.result;
    if (first->getBlock() != cell.result->getBlock())
      return false;
    SmallVector<GateTerm> terms;
    for (Gate &gate : cell.gates)
      llvm::append_range(terms, gate.terms);
    if (cell.reset)
      llvm::append_range(terms, cell.reset->terms);
    Values front;
    DenseSet<Operation *> products, seen;
    for (GateTerm &term : terms) {
      if (dependsOn(term.input, first))
        return false;
      if (term.product && products.insert(term.product).second)
        front.push_back(term.product->getResult(0));
    }
    bool leaves = worklist(front, [&](Value value, Values &list) {
      for (Operation *user : value.getUsers()) {
        if (user == cell.result || user == cell.memory || products.contains(user) || isa<tensor::DimOp>(user))
          continue;
        if (!isPerElement(user) && !isa<tensor::ExtractSliceOp>(user))
          return true;
        seen.insert(user);
        list.push_back(user->getResult(0));
      }
      return false;
    });
    // What was before is not made by the gates.
    return !leaves && (!cell.before || !seen.contains(cell.before.getDefiningOp()));
  }

  llvm::MapVector<Value, SmallVector<GateTerm>> products; // by the state that the cell makes
  SmallVector<GateTerm> recurrences;
};

} // namespace
} // namespace attn
