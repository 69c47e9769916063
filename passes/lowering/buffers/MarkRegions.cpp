#include "dialects/attn/AttnOps.h"
#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {
#define GEN_PASS_DEF_MARKREGIONSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

bool isRegion(Operation *op) {
  if (isa<KernelOp, ParallelForOp, memref::CopyOp>(op))
    return true;
  // Loops that run on one thread; those of the model hold regions of their own.
  return isa<scf::ForOp, scf::ParallelOp>(op) &&
         !op->walk([](Operation *inner) {
              return isa<KernelOp, ParallelForOp>(inner) ? WalkResult::interrupt() : WalkResult::advance();
            }).wasInterrupted();
}

class Marker {
public:
  Marker(func::FuncOp entry, SymbolTable &symbols, SmallVectorImpl<Attribute> &regions)
      : entry(entry), symbols(symbols), regions(regions), b(entry.getContext()) {}

  void run() {
    SmallVector<Operation *> ops;
    entry.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (!isRegion(op))
        return WalkResult::advance();
      ops.push_back(op);
      return WalkResult::skip();
    });
    // What the runtime does before the entry is a region, too.
    b.setInsertionPointToStart(&entry.front());
    loc = entry.getLoc();
    mark("start", ArrayAttr::get(b.getContext(), {}), constant(0), constant(0));
    for (Operation *op : ops) {
      b.setInsertionPointAfter(op);
      loc = op->getLoc();
      mark(getName(op), getNodes(loc), countFlops(op), countBytes(op));
    }
  }

private:
  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value sizeOf(Value buffer, int64_t dim) { return memref::DimOp::create(b, loc, buffer, dim); }

  void mark(StringRef name, ArrayAttr nodes, Value flops, Value bytes) {
    auto number = static_cast<int32_t>(regions.size());
    regions.push_back(b.getDictionaryAttr({b.getNamedAttr("name", b.getStringAttr(name)),
                                           b.getNamedAttr("entry", b.getStringAttr(entry.getName())),
                                           b.getNamedAttr("nodes", nodes)}));
    MarkOp::create(b, loc, number, flops, bytes);
  }

  static StringRef getName(Operation *op) {
    if (auto kernel = dyn_cast<KernelOp>(op))
      return kernel.getCallee();
    return isa<ParallelForOp>(op) ? "loop" : isa<memref::CopyOp>(op) ? "copy" : "serial loop";
  }

  ArrayAttr getNodes(Location where) {
    SmallVector<StringRef> names;
    where->walk([&](Location part) {
      if (isa<NameLoc>(part))
        if (StringRef name = nodeName(part); !name.empty() && !llvm::is_contained(names, name))
          names.push_back(name);
      return WalkResult::advance();
    });
    return b.getStrArrayAttr(names);
  }

  Value countElements(Value buffer) {
    Value count = constant(1);
    for (int64_t dim = 0; dim < cast<MemRefType>(buffer.getType()).getRank(); ++dim)
      count = mul(count, sizeOf(buffer, dim));
    return count;
  }

  Value countFlops(Operation *op) {
    auto kernel = dyn_cast<KernelOp>(op);
    if (!kernel)
      return constant(0);
    if (auto known = kernel->getAttrOfType<DenseI64ArrayAttr>(AttnDialect::kFlopsAttr)) {
      ArrayRef<int64_t> factors = known;
      Value flops = constant(factors.front());
      for (size_t n = 1; n + 1 < factors.size(); n += 2)
        flops = mul(flops, sizeOf(kernel.getInputs()[factors[n]], factors[n + 1]));
      return flops;
    }
    auto callee = symbols.lookup<func::FuncOp>(kernel.getCallee());
    if (!callee || !callee->hasAttr(AttnDialect::kProductAttr))
      return constant(0);
    Value sums = mul(countElements(kernel.getInits().back()), sizeOf(kernel.getInputs().front(), 1));
    return mul(sums, constant(2));
  }

  /// Of all buffers that the region is given, whole: an upper bound.
  Value countBytes(Operation *op) {
    Value bytes = constant(0);
    for (Value operand : op->getOperands()) {
      auto type = dyn_cast<MemRefType>(operand.getType());
      if (!type || !type.getElementType().isIntOrFloat())
        continue;
      int64_t size = (type.getElementTypeBitWidth() + 7) / 8;
      bytes = arith::AddIOp::create(b, loc, bytes, mul(countElements(operand), constant(size)));
    }
    return bytes;
  }

  func::FuncOp entry;
  SymbolTable &symbols;
  SmallVectorImpl<Attribute> &regions;
  OpBuilder b;
  Location loc = b.getUnknownLoc();
};

struct MarkRegionsPass : attn::impl::MarkRegionsPassBase<MarkRegionsPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<Attribute> regions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(AttnDialect::kEntryAttr) && !function->hasAttr(kBroadcastFormAttr) &&
          !function.isExternal())
        Marker(function, symbols, regions).run();
    getOperation()->setAttr(AttnDialect::kRegionsAttr, ArrayAttr::get(&getContext(), regions));
  }
};
} // namespace
