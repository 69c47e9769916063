#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/OptionalInput.h"
#include "passes/Passes.h"
#include "passes/lowering/buffers/ExpandAppends.h"
#include "passes/lowering/buffers/LoopTies.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace attn {
#define GEN_PASS_DEF_FINALIZEENTRIESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
class EntryFinalizer {
public:
  explicit EntryFinalizer(func::FuncOp entry) : entry(entry), b(entry.getContext()) {}

  LogicalResult run() {
    if (!entry.getBody().hasOneBlock() || !isa<func::ReturnOp>(entry.getBody().front().getTerminator()))
      return entry.emitOpError("expects an entry of one block that ends in func.return");
    for (Type type : llvm::concat<const Type>(entry.getArgumentTypes(), entry.getResultTypes()))
      if (!isa<RankedTensorType>(type))
        return entry.emitOpError("expects an entry to take and return ranked tensors, got ") << type;
    FailureOr<llvm::DenseMap<int64_t, AppendedState>> expanded = expandAppends(entry);
    if (failed(expanded))
      return failure();
    appended = std::move(*expanded);
    tieLoops(entry);
    describe();
    takeBuffers();
    hoistPrologue();
    writeOutputs();
    entry.setFunctionType(b.getFunctionType(block().getArgumentTypes(), {}));
    return success();
  }

private:
  Block &block() { return entry.getBody().front(); }

  DictionaryAttr describe(DictionaryAttr attrs, RankedTensorType type, StringRef fallback) {
    auto text = [&](StringRef key) { return attrs ? attrs.getAs<StringAttr>(key) : StringAttr(); };
    StringAttr name = text(AttnDialect::kNameAttr), dtype = text(AttnDialect::kDTypeAttr);
    ArrayAttr dims = attrs ? attrs.getAs<ArrayAttr>(AttnDialect::kDimsAttr) : ArrayAttr();
    SmallVector<int64_t> shape;
    for (int64_t size : type.getShape())
      shape.push_back(ShapedType::isDynamic(size) ? -1 : size);
    if (!dims || static_cast<int64_t>(dims.size()) != type.getRank())
      dims = b.getStrArrayAttr(SmallVector<StringRef>(type.getRank(), ""));
    NamedAttrList described;
    described.set("name", name ? name : b.getStringAttr(fallback));
    described.set("dtype", dtype ? dtype : b.getStringAttr(dtypeName(type.getElementType())));
    described.set("dims", dims);
    described.set("shape", b.getDenseI64ArrayAttr(shape));
    if (attrs && attrs.contains(kOptionalAttr))
      described.set("optional", b.getUnitAttr());
    if (Attribute given = attrs ? attrs.get(kGivenDimsAttr) : Attribute())
      described.set("given_dims", given);
    return described.getDictionary(b.getContext());
  }

  /// What a frontend that says nothing means.
  static std::string dtypeName(Type type) {
    if (type.isBF16())
      return "bfloat16";
    return (isa<FloatType>(type) ? "float" : "int") + std::to_string(type.getIntOrFloatBitWidth());
  }

  void describe() {
    SmallVector<Attribute> inputs, outputs;
    for (auto [i, type] : llvm::enumerate(entry.getArgumentTypes()))
      inputs.push_back(describe(entry.getArgAttrDict(i), cast<RankedTensorType>(type), "input" + std::to_string(i)));
    for (auto [i, type] : llvm::enumerate(entry.getResultTypes()))
      outputs.push_back(
          describe(entry.getResultAttrDict(i), cast<RankedTensorType>(type), "output" + std::to_string(i)));
    entry->setAttr(AttnDialect::kInputsAttr, b.getArrayAttr(inputs));
    entry->setAttr(AttnDialect::kOutputsAttr, b.getArrayAttr(outputs));
    entry.removeArgAttrsAttr();
    entry.removeResAttrsAttr();
  }

  /// Arguments become buffers; every dimension of an argument one value at the
  /// front, and dimensions of one name the same value.
  void takeBuffers() {
    b.setInsertionPointToStart(&block());
    ArrayAttr inputs = entry->getAttrOfType<ArrayAttr>(AttnDialect::kInputsAttr);
    llvm::StringMap<Value> named;
    SmallVector<SmallVector<Value>> sizes;
    for (auto [argument, attr] : llvm::zip(block().getArguments(), inputs.getAsRange<DictionaryAttr>())) {
      auto type = cast<RankedTensorType>(argument.getType());
      argument.setType(MemRefType::get(type.getShape(), type.getElementType()));
      sizes.emplace_back(type.getRank());
      for (auto [dim, name] : llvm::enumerate(attr.getAs<ArrayAttr>("dims").getAsValueRange<StringAttr>())) {
        if (!type.isDynamicDim(dim))
          continue;
        Value known = name.empty() ? Value() : named.lookup(name);
        sizes.back()[dim] = known ? known : memref::DimOp::create(b, argument.getLoc(), argument, dim).getResult();
        if (!name.empty())
          named[name] = sizes.back()[dim];
      }
    }
    for (auto [argument, known] : llvm::zip(block().getArguments(), sizes)) {
      SmallVector<OpOperand *> uses;
      for (OpOperand &use : argument.getUses())
        if (!isa<memref::DimOp>(use.getOwner()))
          uses.push_back(&use);
      auto memref = cast<MemRefType>(argument.getType());
      Value tensor = bufferization::ToTensorOp::create(
          b, argument.getLoc(), RankedTensorType::get(memref.getShape(), memref.getElementType()), argument,
          /*restrict=*/true, /*writable=*/false);
      for (OpOperand *use : uses) {
        auto dim = dyn_cast<tensor::DimOp>(use->getOwner());
        std::optional<int64_t> index = dim ? dim.getConstantIndex() : std::nullopt;
        if (index && *index < memref.getRank() && known[*index])
          dim.getResult().replaceAllUsesWith(known[*index]);
        use->set(tensor); // also of a dimension that nobody asks for any more
      }
    }
    for (Operation &op : llvm::make_early_inc_range(block()))
      if (isa<tensor::DimOp>(op) && op.use_empty())
        op.erase();
  }

  /// True for what computes sizes: pure, without regions, on scalars, or
  /// reading a scalar out of an input.
  bool isPrologueOp(Operation &op) {
    if (isa<bufferization::ToTensorOp, RequireOp>(op))
      return true;
    if (op.getNumRegions() || !isMemoryEffectFree(&op) || isa<tensor::EmptyOp>(op))
      return false;
    return llvm::all_of(op.getResultTypes(), [](Type type) { return type.isIntOrIndexOrFloat(); });
  }

  /// Moves `op` behind `last`, to the front if there is none, and makes it the last.
  void moveBehind(Operation *&last, Operation &op) {
    if (last)
      op.moveAfter(last);
    else
      op.moveBefore(&block(), block().begin());
    last = &op;
  }

  /// Moves to the front what can be computed from the inputs alone.
  void hoistPrologue() {
    Operation *last = nullptr;
    for (Operation &op : llvm::make_early_inc_range(block().without_terminator())) {
      if (!isPrologueOp(op) || !llvm::all_of(op.getOperands(), [&](Value operand) {
            return !operand.getDefiningOp() || prologue.contains(operand.getDefiningOp());
          }))
        continue;
      moveBehind(last, op);
      prologue.insert(&op);
    }
    prologueEnd = last;
    askFormsFirst();
    // Elsewhere the run has begun, and no other form can do it.
    entry.walk([&](RequireOp require) {
      if (!prologue.contains(require))
        require->removeAttr(kOtherwiseAttr);
    });
  }

  /// What leaves a run to another form stands before what ends it.
  void askFormsFirst() {
    llvm::SmallPtrSet<Operation *, 16> asked; // with what they need: sizes of inputs
    for (Operation &op : llvm::reverse(block()))
      if (prologue.contains(&op) && (asked.contains(&op) || op.hasAttr(kOtherwiseAttr))) {
        asked.insert(&op);
        for (Value operand : op.getOperands())
          if (Operation *maker = operand.getDefiningOp())
            asked.insert(maker);
      }
    Operation *last = nullptr;
    for (Operation &op : llvm::make_early_inc_range(block())) {
      if (!asked.contains(&op))
        continue;
      moveBehind(last, op);
    }
    for (Operation &op : block())
      if (prologue.contains(&op))
        prologueEnd = &op;
  }

  /// `tensor` is what a loop carried, and dimension `dim` does not grow: what the
  /// loop began with.
  static Value initOfSameSize(OpResult tensor, int64_t dim) {
    Value init;
    forEachTie(tensor.getOwner(), [&](LoopTie tie) {
      if (tie.result != tensor)
        return;
      bool grows = false;
      Value over = writtenOver(tie.yielded->get(), tie.argument, [&](Operation *op) {
        auto grow = dyn_cast<GrowOp>(op);
        grows |= grow && static_cast<int64_t>(grow.getDim()) == dim;
      });
      if (over == tie.argument && !grows)
        init = tie.init->get();
    });
    return init;
  }

  /// Size of dimension `dim` of `tensor`, from the operands of what made it.
  OpFoldResult sizeOf(Value tensor, int64_t dim) {
    auto type = cast<RankedTensorType>(tensor.getType());
    if (!type.isDynamicDim(dim))
      return b.getIndexAttr(type.getDimSize(dim));
    if (auto result = dyn_cast<OpResult>(tensor)) {
      Operation *op = result.getOwner();
      if (Value init = initOfSameSize(result, dim))
        return sizeOf(init, dim);
      if (auto dps = dyn_cast<DestinationStyleOpInterface>(op); dps && dps.hasPureTensorSemantics())
        return sizeOf(dps.getTiedOpOperand(result)->get(), dim);
      if (auto empty = dyn_cast<tensor::EmptyOp>(op))
        return empty.getMixedSizes()[dim];
      if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
        return expand.getMixedOutputShape()[dim];
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op); slice && slice.getSourceType().getRank() == type.getRank())
        return slice.getMixedSizes()[dim];
      if (auto cast = dyn_cast<tensor::CastOp>(op))
        return sizeOf(cast.getSource(), dim);
      if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
        SmallVector<OpFoldResult> factors;
        ReassociationIndices group = collapse.getReassociationIndices()[dim];
        for (int64_t from : group)
          factors.push_back(sizeOf(collapse.getSrc(), from));
        return product(factors, op);
      }
      if (auto reshape = dyn_cast<tensor::ReshapeOp>(op))
        if (auto elements = reshape.getShape().getDefiningOp<tensor::FromElementsOp>())
          if (elements.getElements()[dim].getType().isIndex())
            return elements.getElements()[dim];
    }
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(tensor);
    return tensor::DimOp::create(b, tensor.getLoc(), tensor, dim).getResult();
  }

  OpFoldResult product(ArrayRef<OpFoldResult> factors, Operation *at) {
    OpBuilder::InsertionGuard guard(b);
    int64_t constant = 1;
    SmallVector<Value> values;
    for (OpFoldResult factor : factors) {
      if (std::optional<int64_t> number = getConstantIntValue(factor))
        constant *= *number;
      else
        values.push_back(cast<Value>(factor));
    }
    if (values.empty())
      return b.getIndexAttr(constant);
    if (constant == 1 && values.size() == 1)
      return values[0];
    setInsertionPointAfterAll(values);
    Value result = values[0];
    auto multiply = [&](Value by) {
      result = arith::MulIOp::create(b, at->getLoc(), result, by);
      placed(result);
    };
    for (Value value : ArrayRef(values).drop_front())
      multiply(value);
    if (constant != 1) {
      Value number = arith::ConstantIndexOp::create(b, at->getLoc(), constant);
      placed(number);
      multiply(number);
    }
    return result;
  }

  /// The checks, above `end`, of numbers that the run reads and `sizes` are computed from.
  SmallVector<Operation *> findChecks(ArrayRef<Value> sizes, Operation *end) {
    SmallVector<Operation *> checks;
    SetVector<Value> numbers(sizes.begin(), sizes.end());
    for (size_t n = 0; end && end->getBlock() == &block() && n < numbers.size(); ++n) {
      Operation *op = numbers[n].getDefiningOp();
      if (!op || isa<tensor::DimOp>(op)) // sizes of inputs are none
        continue;
      llvm::copy_if(numbers[n].getUsers(), std::back_inserter(checks), [&](Operation *user) {
        return isa<RequireOp>(user) && user->getBlock() == &block() && user->isBeforeInBlock(end);
      });
      if (isa<arith::ArithDialect>(op->getDialect()))
        numbers.insert(op->operand_begin(), op->operand_end());
    }
    return checks;
  }

  /// The first place where all of `values` are known, `checks` are done and the prologue is over.
  void setInsertionPointAfterAll(ArrayRef<Value> values, ArrayRef<Operation *> checks = {}) {
    Operation *after = prologueEnd;
    SmallVector<Operation *> others(checks);
    for (Value value : values)
      if (Operation *op = value.getDefiningOp())
        others.push_back(op);
    for (Operation *op : others)
      if (!after || after->isBeforeInBlock(op))
        after = op;
    if (after)
      b.setInsertionPointAfter(after);
    else
      b.setInsertionPointToStart(&block());
  }

  /// An op just written at the end of the prologue belongs to it.
  void placed(Value value) {
    Operation *op = value.getDefiningOp();
    if (op->getPrevNode() == prologueEnd)
      prologueEnd = op;
  }

  void writeOutputs() {
    auto terminator = cast<func::ReturnOp>(block().getTerminator());
    // The sizes first, as they may stand further down than the prologue.
    for (auto [index, result] : llvm::enumerate(terminator.getOperands())) {
      auto type = cast<RankedTensorType>(result.getType());
      if (auto state = appended.find(index); state != appended.end()) {
        b.setInsertionPoint(terminator);
        writeTo(state->second.contents, state->second.memory);
        continue;
      }
      SmallVector<Value> sizes;
      SmallVector<int64_t> shape(type.getShape());
      for (auto [dim, size] : llvm::enumerate(type.getShape())) {
        if (!ShapedType::isDynamic(size))
          continue;
        OpFoldResult known = sizeOf(result, dim);
        setInsertionPointAfterAll(isa<Value>(known) ? SmallVector<Value>{cast<Value>(known)} : SmallVector<Value>{});
        sizes.push_back(getValueOrCreateConstantIndexOp(b, result.getLoc(), known));
        if (isa<Attribute>(known))
          placed(sizes.back());
      }
      setInsertionPointAfterAll(sizes, findChecks(sizes, result.getDefiningOp()));
      auto bufferType = MemRefType::get(shape, type.getElementType());
      Value buffer = OutputOp::create(b, result.getLoc(), bufferType, static_cast<uint32_t>(index), sizes);
      placed(buffer);
      Value value = moveReshapes(result, buffer);
      b.setInsertionPoint(terminator);
      writeTo(value, buffer);
    }
    terminator->setOperands({});
  }

  void writeTo(Value tensor, Value buffer) {
    auto write = bufferization::MaterializeInDestinationOp::create(b, tensor.getLoc(), tensor, buffer);
    write.setRestrict(true);
    write.setWritable(true);
  }

  /// The buffer's size is the product of `sizes`, computed in 64 bits: one that
  /// leaves them would be taken for a small one.
  void requireFits(Location loc, ArrayRef<OpFoldResult> sizes) {
    Value elements = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(1));
    SmallVector<Value> dynamic;
    for (OpFoldResult size : sizes) {
      if (std::optional<int64_t> known = getConstantIntValue(size)) {
        Value factor = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(static_cast<double>(*known)));
        elements = arith::MulFOp::create(b, loc, elements, factor);
        continue;
      }
      dynamic.push_back(cast<Value>(size));
      Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), dynamic.back());
      number = arith::SIToFPOp::create(b, loc, b.getF64Type(), number);
      elements = arith::MulFOp::create(b, loc, elements, number);
    }
    Value limit = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0x1p60));
    Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, elements, limit);
    RequireOp::create(b, loc, fits, "the number of elements of an output is beyond 64 bits", ValueRange());
  }

  /// `value` is a chain of reshapes: undoes them on `buffer` instead, and
  /// returns the value before them.
  Value moveReshapes(Value value, Value &buffer) {
    // No reshape of an empty buffer: memref.collapse_shape refuses {?, 0}.
    while (!llvm::is_contained(cast<MemRefType>(buffer.getType()).getShape(), 0)) {
      b.setInsertionPointAfterValue(buffer);
      if (auto expand = value.getDefiningOp<tensor::ExpandShapeOp>()) {
        auto reassociation = expand.getReassociationIndices();
        auto type = memref::CollapseShapeOp::computeCollapsedType(cast<MemRefType>(buffer.getType()), reassociation);
        buffer = memref::CollapseShapeOp::create(b, value.getLoc(), type, buffer, reassociation);
        value = expand.getSrc();
        // The collapsed type may know less than the source's: {?} of {2, ?}.
        auto want = MemRefType::get(cast<RankedTensorType>(value.getType()).getShape(), type.getElementType());
        if (want != type)
          buffer = memref::CastOp::create(b, value.getLoc(), want, buffer);
      } else if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
                 collapse && collapse.getSrcType().hasStaticShape()) {
        buffer = memref::ExpandShapeOp::create(b, value.getLoc(), collapse.getSrcType().getShape(), buffer,
                                               collapse.getReassociationIndices());
        value = collapse.getSrc();
      } else if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>()) {
        SmallVector<OpFoldResult> sizes;
        SmallVector<Value> values;
        for (int64_t dim = 0; dim < collapse.getSrcType().getRank(); ++dim) {
          sizes.push_back(sizeOf(collapse.getSrc(), dim));
          if (auto known = dyn_cast<Value>(sizes.back()))
            values.push_back(known);
        }
        // Only sizes that are known where the buffer is.
        if (!llvm::all_of(values, [&](Value size) {
              Operation *op = size.getDefiningOp();
              return !op || (op->getBlock() == &block() && op->isBeforeInBlock(buffer.getDefiningOp()));
            }))
          return value;
        requireFits(value.getLoc(), sizes);
        buffer = memref::ExpandShapeOp::create(b, value.getLoc(), collapse.getSrcType().getShape(), buffer,
                                               collapse.getReassociationIndices(), sizes);
        value = collapse.getSrc();
      } else {
        return value;
      }
      placed(buffer);
    }
    return value;
  }

  func::FuncOp entry;
  OpBuilder b;
  llvm::SmallPtrSet<Operation *, 32> prologue;
  Operation *prologueEnd = nullptr;
  llvm::DenseMap<int64_t, AppendedState> appended; // by the number of the output
};

struct FinalizeEntriesPass : attn::impl::FinalizeEntriesPassBase<FinalizeEntriesPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(AttnDialect::kEntryAttr) && !function.isExternal())
        if (failed(EntryFinalizer(function).run()))
          return signalPassFailure();
  }
};
} // namespace
