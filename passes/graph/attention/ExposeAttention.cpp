#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/SegmentAttentionOp.h"
#include "passes/Passes.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/attention/ExposeSteps.h"
#include "passes/graph/attention/RowDivisor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_EXPOSEATTENTIONPASS
#include "passes/Passes.h.inc"

namespace {

using A = AttentionOp;

/// An output of an entry that shows the weights of an attention.
struct Shown {
  std::string suffix; ///< of the output's name, behind the node's
  Reduction reduction = Reduction::none;
  int64_t count = 0; ///< of a top-k

  bool isIndex() const { return reduction == Reduction::argmax || reduction == Reduction::topk_indices; }
  bool has(WeightsAxis axis) const {
    return reduction == Reduction::none ||
           axis != (reduction == Reduction::mean ? WeightsAxis::head : WeightsAxis::key);
  }
};

/// What `--expose-attention-as` calls them.
FailureOr<SmallVector<Shown>> parseShown(StringRef word) {
  if (word == "weights")
    return SmallVector<Shown>{{"weights"}};
  if (word == "head-mean")
    return SmallVector<Shown>{{"head_mean", Reduction::mean}};
  if (word == "argmax")
    return SmallVector<Shown>{{"argmax", Reduction::argmax}};
  if (word == "entropy")
    return SmallVector<Shown>{{"entropy", Reduction::entropy}};
  int64_t count = 0;
  if (!word.consume_front("top-k:") || word.getAsInteger(10, count) || count < 1 || count > kMaxExposedTopK)
    return failure();
  return SmallVector<Shown>{{"top_k_weights", Reduction::topk_values, count},
                            {"top_k_keys", Reduction::topk_indices, count}};
}

/// Why the weights of `op` are not what its graph multiplies with the values, or cannot leave the entry; "" otherwise.
StringRef whyNot(AttentionOp op) {
  if (!isa<func::FuncOp>(op->getParentOp()) && !traceAround(op))
    return "it stands in a loop or a branch";
  bool isScaled = llvm::any_of(op.getExtras().getAsRange<ExtraAttr>(), [](ExtraAttr extra) {
    return extra.getSource() == ExtraSource::lse || extra.getReduction() != Reduction::none;
  });
  if (isScaled && !RowDivisor::find(op))
    return "its weights are scaled behind it, by what is not understood";
  return "";
}

/// "name" of "node 'name' (Softmax)".
StringRef nameOfNode(Operation *op) {
  StringRef node = nodeName(op->getLoc()), name = node.split('\'').second;
  return name.empty() ? node : name.rsplit('\'').first;
}

/// A part of an axis of the graph's weights, and the dimension of the attention that has it.
struct Part {
  WeightsAxis axis;
  unsigned dim;
  OpFoldResult size;
};

class Exposer {
public:
  Exposer(AttentionOp op, ArrayRef<Shown> shown)
      : op(op), shown(shown), divisor(RowDivisor::find(op)), b(op), loc(op.getLoc()) {
    if (divisor)
      b.setInsertionPoint(divisor->place());
    else
      b.setInsertionPointAfter(op);
    sizes = op.getIterationSizes(b, loc);
    findParts();
  }

  /// One value for each of `shown`, with the axes batch, head, query, key of the graph's weights that it has; of size 1
  /// where they lack one.
  SmallVector<Value> expose() {
    SmallVector<Value> outputs;
    AttentionOp twin = createTwin();
    for (auto [one, result] : llvm::zip_equal(shown, twin.getExtraResults())) {
      Value rows = result;
      if (divisor && !one.isIndex())
        rows = divisor->divide(b, loc, rows, dimsOf(one), one.count ? 1 : 0);
      bool isWhole = ofKernel(one) == Reduction::none;
      Value output = toAxes(isWhole ? Shown{one.suffix} : one, rows);
      if (isWhole && one.reduction == Reduction::mean)
        output = meanOverHeads(output);
      if (isWhole && one.reduction == Reduction::entropy)
        output = entropyOverKeys(output);
      outputs.push_back(output);
    }
    return outputs;
  }

private:
  /// What the kernel reduces for `one`; what it cannot is reduced behind it.
  Reduction ofKernel(const Shown &one) const {
    bool isBehind =
        one.reduction == Reduction::mean ? !hasMean || divisor : one.reduction == Reduction::entropy && divisor;
    return isBehind ? Reduction::none : one.reduction;
  }

  void findParts() {
    ArrayAttr axes = op.getAxesAttr();
    for (unsigned dim = A::B; !axes && dim <= A::J; ++dim)
      if (op.isNamed(dim))
        parts.push_back({static_cast<WeightsAxis>(dim), dim, sizes[dim]});
    for (Attribute attr : axes ? axes.getValue() : ArrayRef<Attribute>()) {
      auto part = cast<AxisPartAttr>(attr);
      bool isOpen = ShapedType::isDynamic(part.getSize());
      parts.push_back(
          {part.getAxis(), part.getDim(), isOpen ? openSize(part.getDim()) : b.getIndexAttr(part.getSize())});
    }
    // The kernel takes the mean over h.
    hasMean = llvm::all_of(
        parts, [](const Part &part) { return (part.axis == WeightsAxis::head) == (part.dim == unsigned(A::H)); });
  }

  /// Of the part of `dim` whose size is open: what the others leave.
  OpFoldResult openSize(unsigned dim) {
    int64_t others = 1;
    for (auto part : op.getAxesAttr().getAsRange<AxisPartAttr>())
      if (part.getDim() == dim && !ShapedType::isDynamic(part.getSize()))
        others *= part.getSize();
    if (others == 1)
      return sizes[dim];
    if (std::optional<int64_t> size = getConstantIntValue(sizes[dim]))
      return b.getIndexAttr(*size / others);
    Value whole = getValueOrCreateConstantIndexOp(b, loc, sizes[dim]);
    return arith::DivUIOp::create(b, loc, whole, arith::ConstantIndexOp::create(b, loc, others)).getResult();
  }

  /// Of a top-k; no more than there are keys, where their number is fixed.
  int64_t countOf(const Shown &one) const {
    return std::min(one.count, getConstantIntValue(sizes[A::J]).value_or(one.count));
  }

  /// The dimensions of the attention that its kernel leaves.
  SmallVector<unsigned> dimsOf(const Shown &one) {
    bool isWhole = ofKernel(one) == Reduction::none;
    unsigned reduced = one.reduction == Reduction::mean ? A::H : A::J;
    SmallVector<unsigned> dims;
    for (unsigned dim : {A::B, A::H, A::I, A::J})
      if (op.isNamed(dim) && (isWhole || dim != reduced))
        dims.push_back(dim);
    return dims;
  }

  RankedTensorType typeOf(const Shown &one, ArrayRef<OpFoldResult> extents) {
    SmallVector<int64_t> shape;
    for (OpFoldResult extent : extents)
      shape.push_back(getConstantIntValue(extent).value_or(ShapedType::kDynamic));
    if (one.count)
      shape.push_back(countOf(one));
    return RankedTensorType::get(shape, one.isIndex() ? Type(b.getI64Type()) : op.getComputeType());
  }

  /// The same scores and weights once more, summed over values of width 1, so that the results of `op` keep their bits:
  /// kernels that give weights add in another order.
  AttentionOp createTwin() {
    AttentionParts twinParts = op.getParts();
    unsigned value = op.getKey() ? 2 : 1, result = op.getNumOperands();
    Type element = getElementTypeOrSelf(op.getValue());
    twinParts.value = filledTensor(b, loc, {sizes[A::J], b.getIndexAttr(1)}, element, 0);
    twinParts.maps.resize(result + 1);
    twinParts.maps[value] =
        AffineMap::get(A::kDims, 0, {b.getAffineDimExpr(A::J), b.getAffineDimExpr(A::E)}, b.getContext());
    SmallVector<int64_t> shape(cast<RankedTensorType>(op.getResult().getType()).getShape());
    for (auto [n, expr] : llvm::enumerate(op.getResultMap().getResults()))
      if (expr == b.getAffineDimExpr(A::E))
        shape[n] = 1;
    twinParts.types = {RankedTensorType::get(shape, element)};
    twinParts.extras.clear();
    twinParts.axes = {};
    for (const Shown &one : shown) {
      SmallVector<AffineExpr> exprs;
      SmallVector<OpFoldResult> extents;
      for (unsigned dim : dimsOf(one)) {
        exprs.push_back(b.getAffineDimExpr(dim));
        extents.push_back(sizes[dim]);
      }
      twinParts.extras.push_back(ExtraAttr::get(b.getContext(), ExtraSource::final_weights, ofKernel(one)));
      twinParts.maps.push_back(AffineMap::get(A::kDims, 0, exprs, b.getContext()));
      twinParts.types.push_back(typeOf(one, extents));
    }
    auto twin = AttentionOp::create(b, loc, twinParts);
    IRMapping mapping;
    for (auto [to, from] : llvm::zip_equal(twin->getRegions(), op->getRegions()))
      from.cloneInto(&to, mapping);
    return twin;
  }

  /// `result`, with the dimensions of the attention, as the axes that `one` has, and the places of a top-k.
  Value toAxes(const Shown &one, Value result) {
    // Each dimension as its parts.
    SmallVector<OpFoldResult> extents;
    SmallVector<ReassociationIndices> groups;
    SmallVector<unsigned> order; // of `parts`
    for (unsigned dim : dimsOf(one)) {
      groups.emplace_back();
      for (auto [n, part] : llvm::enumerate(parts))
        if (part.dim == dim) {
          groups.back().push_back(order.size());
          order.push_back(n);
          extents.push_back(part.size);
        }
    }
    if (one.count) {
      groups.push_back({static_cast<int64_t>(order.size())});
      order.push_back(parts.size());
      extents.push_back(b.getIndexAttr(countOf(one)));
    }
    result = expanded(b, loc, result, groups, extents);
    // In the graph's order.
    SmallVector<unsigned> sorted(order);
    llvm::sort(sorted);
    SmallVector<OpFoldResult> sortedExtents;
    SmallVector<AffineExpr> exprs;
    for (unsigned part : sorted)
      sortedExtents.push_back(extents[llvm::find(order, part) - order.begin()]);
    for (unsigned part : order)
      exprs.push_back(b.getAffineDimExpr(llvm::find(sorted, part) - sorted.begin()));
    if (sorted != order)
      result = rearranged(b, loc, result, sortedExtents, AffineMap::get(order.size(), 0, exprs, b.getContext()));
    return joinParts(one, result, sorted);
  }

  /// The parts of an axis become one dimension, and an axis without any has size 1.
  Value joinParts(const Shown &one, Value result, ArrayRef<unsigned> sorted) {
    SmallVector<ReassociationIndices> joined, added;
    ReassociationIndices open;
    SmallVector<OpFoldResult> axes;
    auto add = [&](ArrayRef<unsigned> members, OpFoldResult extent) {
      open.push_back(axes.size());
      axes.push_back(extent);
      if (members.empty())
        return;
      joined.emplace_back(members.begin(), members.end());
      added.push_back(std::exchange(open, {}));
    };
    for (WeightsAxis axis : {WeightsAxis::batch, WeightsAxis::head, WeightsAxis::query, WeightsAxis::key}) {
      if (!one.has(axis))
        continue;
      SmallVector<unsigned> members;
      Value total;
      int64_t known = 1;
      for (auto [n, part] : llvm::enumerate(sorted)) {
        if (part == parts.size() || parts[part].axis != axis)
          continue;
        members.push_back(n);
        if (std::optional<int64_t> size = getConstantIntValue(parts[part].size)) {
          known *= *size;
          continue;
        }
        Value size = getValueOrCreateConstantIndexOp(b, loc, parts[part].size);
        total = total ? arith::MulIOp::create(b, loc, total, size).getResult() : size;
      }
      if (total && known != 1)
        total = arith::MulIOp::create(b, loc, total, arith::ConstantIndexOp::create(b, loc, known));
      add(members, total ? OpFoldResult(total) : b.getIndexAttr(known));
    }
    if (one.count)
      add({static_cast<unsigned>(sorted.size() - 1)}, b.getIndexAttr(countOf(one)));
    if (!added.empty())
      llvm::append_range(added.back(), open);
    if (joined.size() != sorted.size())
      result = tensor::CollapseShapeOp::create(b, loc, result, joined);
    return expanded(b, loc, result, added, axes);
  }

  /// Of [batch, head, query, key], in the order of the heads.
  Value meanOverHeads(Value weights) {
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, weights), kept(extents);
    kept.erase(kept.begin() + 1);
    Type element = getElementTypeOrSelf(weights);
    AffineMap all = b.getMultiDimIdentityMap(4), axes = all.dropResult(1);
    Value sum = reduction(b, loc, weights, all, filledTensor(b, loc, kept, element, 0), axes,
                          formula([](ArrayRef<Num> x) { return x[0] + x[1]; }));
    Value heads = getValueOrCreateConstantIndexOp(b, loc, extents[1]);
    Value count = arith::IndexCastOp::create(b, loc, b.getI64Type(), heads);
    count = arith::UIToFPOp::create(b, loc, element, count);
    return elementwise(b, loc, kept, element, sum, b.getMultiDimIdentityMap(3),
                       formula([&](Code &k, ArrayRef<Num> x) { return x[0] / k.asNum(count); }));
  }

  /// Of [batch, head, query, key].
  Value entropyOverKeys(Value weights) {
    SmallVector<OpFoldResult> kept = tensor::getMixedSizes(b, loc, weights);
    kept.pop_back();
    Type element = getElementTypeOrSelf(weights);
    AffineMap all = b.getMultiDimIdentityMap(4);
    return reduction(b, loc, weights, all, filledTensor(b, loc, kept, element, 0), all.dropResult(3),
                     [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value zero = arith::ConstantOp::create(b, loc, b.getFloatAttr(element, 0));
                       Value some = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, args[0], zero);
                       Value part = arith::MulFOp::create(b, loc, args[0], math::LogOp::create(b, loc, args[0]));
                       part = arith::SelectOp::create(b, loc, some, part, zero);
                       return arith::SubFOp::create(b, loc, args[1], part);
                     });
  }

  AttentionOp op;
  ArrayRef<Shown> shown;
  std::optional<RowDivisor> divisor;
  OpBuilder b;
  Location loc;
  SmallVector<OpFoldResult> sizes;
  SmallVector<Part> parts; ///< in the order of the axes
  bool hasMean = false;    ///< whether heads are h, all of it
};

struct ExposeAttentionPass : impl::ExposeAttentionPassBase<ExposeAttentionPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<Shown> shown;
    for (const std::string &word : as) {
      FailureOr<SmallVector<Shown>> more = parseShown(word);
      if (failed(more)) {
        getOperation().emitError("expects weights, head-mean, argmax, entropy or top-k:K, got '" + word + "'");
        return signalPassFailure();
      }
      shown.append(*more);
    }
    getOperation().walk([&](Operation *op) {
      if (!isa<AttentionOp, SegmentAttentionOp>(op))
        return;
      StringRef name = nameOfNode(op), entry = VerdictName(op).entry;
      if (llvm::any_of(nodes, [&](StringRef node) {
            return node == "all" || node == name ||
                   (node.consume_front(entry) && node.consume_front(":") && node == name);
          }))
        attentions.push_back(op);
    });
    for (Operation *op : attentions)
      expose(op, shown);
    if (!attentions.empty())
      complete();
    getOperation().walk([](TraceOp trace) { trace.erase(); });
  }

private:
  /// What the fusion report says of an attention.
  struct Entry {
    VerdictName name;
    SmallVector<std::string> outputs = {};
    StringRef reason = {};
  };

  void expose(Operation *attention, ArrayRef<Shown> shown) {
    Entry &entry = entries.emplace_back(Entry{VerdictName(attention)});
    auto function = attention->getParentOfType<func::FuncOp>();
    auto op = dyn_cast<AttentionOp>(attention);
    entry.reason = op ? whyNot(op) : StringRef("it has one for each edge, not for queries and keys");
    if (entry.reason.empty() && !function->hasAttr(AttnDialect::kEntryAttr))
      entry.reason = "it stands in a function that is not an entry";
    if (!entry.reason.empty())
      return;
    SmallVector<Value> outputs = Exposer(op, shown).expose();
    for (auto [one, output] : llvm::zip_equal(shown, outputs)) {
      std::string name = uniqueName(function, (nameOfNode(op) + "." + one.suffix).str());
      entry.outputs.push_back(name);
      TraceOp trace = traceAround(op);
      unsigned queryAxis = one.has(WeightsAxis::head) ? 2 : 1;
      if (trace)
        output = exposeSteps(trace, output, queryAxis, name);
      SmallVector<Attribute> dims(cast<RankedTensorType>(output.getType()).getRank(), StringAttr::get(&getContext()));
      if (trace)
        nameDims(function, trace, queryAxis, dims);
      addOutput(function, output, name, dims);
    }
  }

  /// A node that became several attentions (one for each weighted sum) has outputs with numbers.
  std::string uniqueName(func::FuncOp function, const std::string &name) {
    auto isTaken = [&](StringRef candidate) {
      for (unsigned n = 0; n != function.getNumResults(); ++n)
        if (auto known = function.getResultAttrOfType<StringAttr>(n, AttnDialect::kNameAttr); known == candidate)
          return true;
      return false;
    };
    std::string candidate = name;
    for (unsigned n = 2; isTaken(candidate); ++n)
      candidate = name + "." + std::to_string(n);
    return candidate;
  }

  /// As the output of the tokens has them.
  void nameDims(func::FuncOp function, TraceOp trace, unsigned queryAxis, MutableArrayRef<Attribute> dims) {
    auto known = function.getResultAttrOfType<ArrayAttr>(0, AttnDialect::kDimsAttr);
    size_t items = cast<RankedTensorType>(trace.getRows().getType()).getRank() - 1;
    if (!known || known.size() != items + 1)
      return;
    llvm::copy(known.getValue().drop_back(), dims.begin());
    dims[items + queryAxis - 1] = known.getValue().back();
  }

  void addOutput(func::FuncOp function, Value output, StringRef name, ArrayRef<Attribute> dims) {
    Builder b(&getContext());
    auto type = cast<RankedTensorType>(output.getType());
    bool isDouble = type.getElementType().isF64();
    StringRef dtype = isa<IntegerType>(type.getElementType()) ? "int64" : isDouble ? "float64" : "float32";
    auto attrs = b.getDictionaryAttr({
        b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
        b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtype)),
        b.getNamedAttr(AttnDialect::kDimsAttr, b.getArrayAttr(dims)),
    });
    (void)function.insertResult(function.getNumResults(), type, attrs);
    Operation *end = function.getBody().front().getTerminator();
    end->insertOperands(end->getNumOperands(), output);
  }

  /// Adds `exposed` or `not_exposed` to the verdicts, which stand in the order of the attentions of one name.
  void complete() {
    Builder b(&getContext());
    for (const Entry &entry : entries)
      editVerdict(
          getOperation(), entry.name, [](DictionaryAttr known, size_t) { return !known.contains("not_exposed"); },
          [&](NamedAttrList &list) {
            if (!entry.reason.empty()) {
              list.set("not_exposed", b.getStringAttr(entry.reason));
              return;
            }
            auto before = dyn_cast_or_null<ArrayAttr>(list.get("exposed"));
            SmallVector<Attribute> outputs(before ? before.getValue() : ArrayRef<Attribute>());
            for (const std::string &name : entry.outputs)
              outputs.push_back(b.getStringAttr(name));
            list.set("exposed", b.getArrayAttr(outputs));
          });
  }

  SmallVector<Operation *> attentions;
  SmallVector<Entry> entries;
};

} // namespace

bool isExposure(StringRef word) { return succeeded(parseShown(word)); }

std::unique_ptr<Pass> createExposeAttentionPass(ArrayRef<std::string> nodes, ArrayRef<std::string> as) {
  ExposeAttentionPassOptions options;
  options.nodes.assign(nodes.begin(), nodes.end());
  options.as.assign(as.begin(), as.end());
  return std::make_unique<ExposeAttentionPass>(options);
}

} // namespace attn
