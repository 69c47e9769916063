#include "passes/lowering/search/NarrowCaches.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/lowering/search/CacheValues.h"
#include "passes/lowering/search/SearchKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

namespace {

class CacheNarrowing {
public:
  CacheNarrowing(ModuleOp module, Type element, const SearchKernels &target, AttentionObstacle findObstacle,
                 StringRef category)
      : module(module), element(element), target(target), findObstacle(findObstacle), category(category),
        kernels(module), b(module.getContext()) {}

  void run() {
    for (auto entry : llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      if (!entry->hasAttr(AttnDialect::kEntryAttr) || entry.isExternal())
        continue;
      narrowStates(entry);
      SmallVector<scf::WhileOp> loops;
      entry.walk([&](scf::WhileOp loop) { loops.push_back(loop); });
      for (scf::WhileOp loop : loops)
        narrowCarried(loop);
    }
    for (StringAttr symbol : replaced)
      if (SymbolTable::symbolKnownUseEmpty(symbol, module))
        SymbolTable::lookupSymbolIn(module, symbol)->erase();
    module->setAttr(kCacheReportAttr, b.getArrayAttr(report));
  }

private:
  void narrowStates(func::FuncOp entry);
  void narrowCarried(scf::WhileOp loop);
  void noteReadOnly(scf::WhileOp loop);
  void narrow(const CacheValues &cache);
  void add(func::FuncOp entry, StringRef name, RankedTensorType type, StringRef reason);

  ModuleOp module;
  Type element; ///< of a row in bytes
  const SearchKernels &target;
  AttentionObstacle findObstacle;
  StringRef category;
  KernelTable kernels;
  OpBuilder b;
  SmallVector<Attribute> report;
  llvm::SetVector<StringAttr> replaced; ///< kernels, perhaps of others, too
};

/// A line of the report: where `reason` is empty, what a position took before and takes now.
void CacheNarrowing::add(func::FuncOp entry, StringRef name, RankedTensorType type, StringRef reason) {
  NamedAttrList fields;
  auto called = entry->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr);
  fields.set("entry", called ? called : entry.getSymNameAttr());
  fields.set("cache", b.getStringAttr(name));
  fields.set("reason", b.getStringAttr(reason));
  if (reason.empty()) {
    int64_t rows = 1, width = type.getShape().back();
    for (int64_t size : type.getShape().drop_back())
      rows *= ShapedType::isDynamic(size) ? 1 : size;
    fields.set("bytes_before", b.getI64IntegerAttr(rows * width * (type.getElementTypeBitWidth() / 8)));
    fields.set("bytes", b.getI64IntegerAttr(rows * (width + kScaleBytes)));
    remark::passed(entry.getLoc(), remark::RemarkOpts::name("Cache").category(category))
        << (name + " is stored in 8 bits").str();
  } else {
    remark::missed(entry.getLoc(), remark::RemarkOpts::name("Cache").category(category))
        << remark::reason("{0}", (name + ": " + reason).str());
  }
  report.push_back(fields.getDictionary(module.getContext()));
}

void CacheNarrowing::narrowStates(func::FuncOp entry) {
  auto states = entry->getAttrOfType<ArrayAttr>(kStatesAttr);
  if (!states)
    return;
  auto reasons = entry->getAttrOfType<ArrayAttr>(kStateReasonsAttr);
  for (auto [n, state] : llvm::enumerate(states.getAsRange<DenseI64ArrayAttr>())) {
    int64_t input = state[0], output = state[1];
    auto type = cast<RankedTensorType>(entry.getArgumentTypes()[input]);
    auto called = entry.getArgAttrOfType<StringAttr>(input, AttnDialect::kNameAttr);
    std::string name = "state '" + (called ? called.str() : std::to_string(input)) + "'";
    auto copied = reasons ? dyn_cast<StringAttr>(reasons[n]) : StringAttr();
    if (copied && !copied.getValue().empty()) {
      add(entry, name, type, "each run makes a new tensor of it");
      continue;
    }
    if (!element.isInteger(8)) {
      add(entry, name, type, "what a library keeps is of no such type");
      continue;
    }
    CacheValues cache(entry.getArgument(input), findObstacle);
    std::string obstacle = cache.findObstacle();
    add(entry, name, type, obstacle);
    if (!obstacle.empty())
      continue;
    narrow(cache);
    entry.setArgAttr(input, AttnDialect::kDTypeAttr, b.getStringAttr("int8"));
    entry.setResultAttr(output, AttnDialect::kDTypeAttr, b.getStringAttr("int8"));
    entry.setFunctionType(b.getFunctionType(entry.getBody().getArgumentTypes(),
                                            entry.getBody().front().getTerminator()->getOperandTypes()));
  }
}

/// What a search carries as buffers with room.
void CacheNarrowing::narrowCarried(scf::WhileOp loop) {
  auto entry = loop->getParentOfType<func::FuncOp>();
  for (auto [n, init] : llvm::enumerate(loop.getInits())) {
    if (!init.getDefiningOp<GrowOp>())
      continue;
    CacheValues cache(loop.getBeforeArguments()[n], findObstacle);
    std::string obstacle = cache.findObstacle();
    if (cache.reads.empty()) // histories of tokens
      continue;
    AttentionOp reader = cache.reads.front().attention();
    StringRef role = cache.reads.front().operand->getOperandNumber() == 1 && reader.getKey() ? "keys" : "values";
    add(entry, (role + " of " + nodeName(reader.getLoc())).str(), cast<RankedTensorType>(init.getType()), obstacle);
    if (obstacle.empty())
      narrow(cache);
  }
  noteReadOnly(loop);
}

/// Whether a loop only reads `rows`: what they are a view or a conversion of was there before it.
static bool isReadOnly(scf::WhileOp loop, Value rows) {
  auto isOutside = [&](Value value) { return !loop->isAncestor(value.getParentBlock()->getParentOp()); };
  while (!isOutside(rows)) {
    Operation *maker = rows.getDefiningOp();
    if (!maker || !(isa<ViewLikeOpInterface, tensor::CastOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                        tensor::ExtractSliceOp, linalg::TransposeOp>(maker)))
      return false;
    rows = maker->getOperand(0);
  }
  return !rows.getDefiningOp<WeightOp>() && !matchPattern(rows, m_Constant());
}

/// Keys and values of another sequence, an encoder's, to which no step adds.
void CacheNarrowing::noteReadOnly(scf::WhileOp loop) {
  auto entry = loop->getParentOfType<func::FuncOp>();
  loop->walk([&](AttentionOp reader) {
    auto note = [&](StringRef role, Value rows) {
      if (rows && isReadOnly(loop, rows))
        add(entry, (role + " of " + nodeName(reader.getLoc())).str(), cast<RankedTensorType>(rows.getType()),
            "no step adds rows");
    };
    note("keys", reader.getKey());
    note("values", reader.getValue());
  });
}

/// Changes the type of the cache: what is written becomes bytes before, attentions read what these stand for.
void CacheNarrowing::narrow(const CacheValues &cache) {
  for (const CacheValues::Read &read : cache.reads) {
    AttentionOp attention = read.attention();
    b.setInsertionPoint(attention);
    auto type = cast<RankedTensorType>(read.source.getType());
    Type number = getElementTypeOrSelf(read.operand->get());
    Value wide = WidenRowsOp::create(b, attention.getLoc(), type.clone(number), read.source);
    if (wide.getType() != read.operand->get().getType())
      wide = tensor::CastOp::create(b, attention.getLoc(), read.operand->get().getType(), wide);
    read.operand->set(wide);
    bool isKey = read.operand->getOperandNumber() == 1 && attention.getKey();
    completeVerdict(module, VerdictName(attention),
                    b.getNamedAttr(isKey ? "stored_keys" : "stored_values",
                                   b.getStringAttr(element.isInteger(8) ? "int8" : "fp8")));
  }
  for (OpOperand *rows : cache.written) {
    b.setInsertionPoint(rows->getOwner());
    auto type = getNarrowType(cast<RankedTensorType>(rows->get().getType()), element);
    rows->set(NarrowRowsOp::create(b, rows->getOwner()->getLoc(), type, rows->get()));
  }
  for (Value value : cache.values)
    value.setType(getNarrowType(cast<RankedTensorType>(value.getType()), element));
  for (Operation *op : cache.views) {
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      SmallVector<int64_t> sizes(slice.getStaticSizes());
      sizes.back() += kScaleBytes;
      slice.setStaticSizes(sizes);
    } else if (auto slice = dyn_cast<tensor::InsertSliceOp>(op)) {
      SmallVector<int64_t> sizes(slice.getStaticSizes());
      sizes.back() += kScaleBytes;
      slice.setStaticSizes(sizes);
    } else if (auto move = dyn_cast<KernelOp>(op)) {
      ArrayRef<int64_t> how = move->getAttrOfType<DenseI64ArrayAttr>(kMoveAttr).asArrayRef();
      auto type = cast<RankedTensorType>(move->getResult(0).getType());
      func::FuncOp kernel = getMoveKernel(kernels, target, {how[0], type, how[1], how[2]});
      replaced.insert(move.getCalleeAttr().getAttr());
      move.setCalleeAttr(FlatSymbolRefAttr::get(kernel));
    }
  }
  for (Operation *op : cache.widenings)
    op->erase();
}

} // namespace

void attn::narrowCaches(ModuleOp module, Type element, const SearchKernels &target, AttentionObstacle findObstacle,
                        StringRef category) {
  CacheNarrowing(module, element, target, findObstacle, category).run();
}
