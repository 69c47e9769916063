#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/kernels/spec/KernelAttrs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_OUTLINEPARALLELPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// Whether each task makes `value` again rather than take it: constants and
/// vector.step, which hoisting moves out of the loop. Not the address of a
/// table, with which tasks on several tables are one.
bool isMadeInTask(Operation *def) {
  return def && !isa<memref::GetGlobalOp>(def) &&
         (def->hasTrait<OpTrait::ConstantLike>() ||
          (def->getNumOperands() == 0 && def->getNumRegions() == 0 && isPure(def)));
}

bool canOutline(scf::ParallelOp loop) {
  return loop.getNumLoops() == 1 && loop.getInitVals().empty() && isConstantIntValue(loop.getLowerBound()[0], 0) &&
         isConstantIntValue(loop.getStep()[0], 1) && !loop->getParentOfType<scf::ParallelOp>();
}

/// The tasks of a module, each piece of code once: the blocks of a model differ in their operands only.
class Tasks {
public:
  /// The task that `made` is to be called as: an equal one that came before, for which it is erased, or itself.
  StringAttr share(func::FuncOp made, SymbolTable &symbols) {
    llvm::hash_code hash = hashOf(made);
    for (func::FuncOp before : byHash[hash])
      if (before.getFunctionType() == made.getFunctionType() &&
          OperationEquivalence::isRegionEquivalentTo(&before.getBody(), &made.getBody(),
                                                     OperationEquivalence::IgnoreLocations)) {
        symbols.erase(made);
        return before.getSymNameAttr();
      }
    byHash[hash].push_back(made);
    return made.getSymNameAttr();
  }

private:
  static llvm::hash_code hashOf(func::FuncOp task) {
    llvm::hash_code hash = llvm::hash_value(task.getFunctionType().getAsOpaquePointer());
    task.getBody().walk([&](Operation *op) {
      hash = llvm::hash_combine(hash, OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                                                        OperationEquivalence::ignoreHashValue,
                                                                        OperationEquivalence::IgnoreLocations));
    });
    return hash;
  }

  llvm::DenseMap<size_t, SmallVector<func::FuncOp, 1>> byHash;
};

void outline(scf::ParallelOp loop, func::FuncOp parent, SymbolTable &symbols, Tasks &tasks) {
  OpBuilder b(parent);
  Location loc = loop.getLoc();
  llvm::SetVector<Value> used;
  getUsedValuesDefinedAbove(loop.getRegion(), used);
  SmallVector<Value> captures;
  SmallVector<Operation *> constants;
  for (Value value : used) {
    Operation *def = value.getDefiningOp();
    if (isMadeInTask(def))
      constants.push_back(def);
    else
      captures.push_back(value);
  }
  SmallVector<Type> arguments{b.getIndexType(), b.getIndexType()};
  llvm::append_range(arguments, ValueRange(captures).getTypes());
  auto task = func::FuncOp::create(b, loc, (parent.getName() + "_task").str(), b.getFunctionType(arguments, {}));
  task.setPrivate();
  task->setAttr(AttnDialect::kTaskAttr, b.getUnitAttr());
  symbols.insert(task, std::next(Block::iterator(parent)));

  Block *entry = task.addEntryBlock();
  b.setInsertionPointToStart(entry);
  for (auto [capture, argument] : llvm::zip(captures, entry->getArguments().drop_front(2)))
    replaceAllUsesInRegionWith(capture, argument, loop.getRegion());
  for (Operation *constant : constants)
    for (auto [value, made] : llvm::zip(constant->getResults(), b.clone(*constant)->getResults()))
      replaceAllUsesInRegionWith(value, made, loop.getRegion());
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto serial = scf::ForOp::create(b, loc, entry->getArgument(0), entry->getArgument(1), one);
  func::ReturnOp::create(b, loc);
  Block *body = serial.getBody();
  loop.getInductionVars()[0].replaceAllUsesWith(serial.getInductionVar());
  body->getOperations().splice(body->begin(), loop.getBody()->getOperations(), loop.getBody()->begin(),
                               std::prev(loop.getBody()->end()));

  b.setInsertionPoint(loop);
  auto least = loop->getAttrOfType<IntegerAttr>(AttnDialect::kMinIterationsAttr);
  ParallelForOp::create(b, loc, FlatSymbolRefAttr::get(tasks.share(task, symbols)), loop.getUpperBound()[0], captures,
                        b.getI64IntegerAttr(least ? least.getInt() : 2));
  loop.erase();
}

/// Moves scratch of static size to the entry of its function: in a loop, every
/// iteration would take more stack, and give none back before the return.
void hoistScratch(func::FuncOp function) {
  if (function.isExternal())
    return;
  Block &entry = function.front();
  function.walk([&](memref::AllocaOp alloca) {
    if (alloca->getBlock() != &entry && alloca.getType().hasStaticShape())
      alloca->moveBefore(&entry, entry.begin());
  });
}

struct OutlineParallelPass : attn::impl::OutlineParallelPassBase<OutlineParallelPass> {
  /// A loop of one task is none any more: what its task had lies in the call's scratch then, behind the call's own.
  static void keepScratch(func::FuncOp kernel) {
    auto bytes = kernel->getAttrOfType<DenseI64ArrayAttr>(kScratchAttr);
    int64_t ofCall = bytes[0], most = ofCall;
    Builder b(kernel);
    kernel.walk([&](memref::AllocaOp alloca) {
      auto place = alloca->getAttrOfType<DenseI64ArrayAttr>(kTaskScratchAttr);
      if (!place || alloca->getParentOfType<scf::ParallelOp>())
        return;
      most = std::max(most, ofCall + place[1]);
      alloca->removeAttr(kTaskScratchAttr);
      alloca->setAttr(kScratchAttr, b.getI64IntegerAttr(ofCall + place[0]));
    });
    kernel->setAttr(kScratchAttr, b.getDenseI64ArrayAttr({most, bytes[1]}));
  }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    Tasks tasks;
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    for (func::FuncOp function : functions) {
      if (!function->hasAttr(AttnDialect::kEntryAttr) && !function->hasAttr(AttnDialect::kKernelAttr))
        continue;
      SmallVector<scf::ParallelOp> loops;
      function.walk([&](scf::ParallelOp loop) {
        if (canOutline(loop))
          loops.push_back(loop);
      });
      for (scf::ParallelOp loop : loops)
        outline(loop, function, symbols, tasks);
    }
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      hoistScratch(function);
      if (function->hasAttr(kScratchAttr))
        keepScratch(function);
    }
  }
};
} // namespace
