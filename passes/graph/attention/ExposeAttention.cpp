#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
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
  bool has(unsigned dim) const {
    return reduction == Reduction::none || (reduction == Reduction::mean ? dim != A::H : dim != A::J);
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
  if (!isa<func::FuncOp>(op->getParentOp()))
    return "it stands in a loop, a branch or a search";
  for (Attribute attr : op.getExtras()) {
    auto extra = cast<ExtraAttr>(attr);
    if (extra.getSource() == ExtraSource::lse || extra.getReduction() != Reduction::none)
      return "its weights are scaled behind it (an attention sink, or a sum that they are divided by)";
  }
  return "";
}

/// "name" of "node 'name' (Softmax)".
StringRef nameOfNode(AttentionOp op) {
  StringRef node = nodeName(op.getLoc()), name = node.split('\'').second;
  return name.empty() ? node : name.rsplit('\'').first;
}

class Exposer {
public:
  Exposer(AttentionOp op, ArrayRef<Shown> shown) : op(op), shown(shown), b(op), loc(op.getLoc()) {
    b.setInsertionPointAfter(op);
    sizes = op.getIterationSizes(b, loc);
  }

  /// One value for each of `shown`, with the dimensions batch, head, query, key that it has; of size 1 where the
  /// attention lacks one.
  SmallVector<Value> expose() {
    SmallVector<Value> outputs;
    AttentionOp twin = createTwin();
    for (auto [one, result] : llvm::zip_equal(shown, twin.getExtraResults()))
      outputs.push_back(addMissingDims(one, result));
    return outputs;
  }

private:
  /// Of a top-k; no more than there are keys, where their number is fixed.
  int64_t countOf(const Shown &one) const {
    return std::min(one.count, getConstantIntValue(sizes[A::J]).value_or(one.count));
  }

  SmallVector<unsigned> dimsOf(const Shown &one) {
    SmallVector<unsigned> dims;
    for (unsigned dim : {A::B, A::H, A::I, A::J})
      if (one.has(dim) && op.isNamed(dim))
        dims.push_back(dim);
    return dims;
  }

  RankedTensorType typeOf(const Shown &one, ArrayRef<unsigned> dims) {
    SmallVector<int64_t> shape;
    for (unsigned dim : dims)
      shape.push_back(op.isNamed(dim) ? getConstantIntValue(sizes[dim]).value_or(ShapedType::kDynamic) : 1);
    if (one.count)
      shape.push_back(countOf(one));
    return RankedTensorType::get(shape, one.isIndex() ? Type(b.getI64Type()) : op.getComputeType());
  }

  /// The same scores and weights once more, summed over values of width 1, so that the results of `op` keep their bits:
  /// kernels that give weights add in another order.
  AttentionOp createTwin() {
    AttentionParts parts = op.getParts();
    unsigned value = op.getKey() ? 2 : 1, result = op.getNumOperands();
    Type element = getElementTypeOrSelf(op.getValue());
    parts.value = filledTensor(b, loc, {sizes[A::J], b.getIndexAttr(1)}, element, 0);
    parts.maps.resize(result + 1);
    parts.maps[value] =
        AffineMap::get(A::kDims, 0, {b.getAffineDimExpr(A::J), b.getAffineDimExpr(A::E)}, b.getContext());
    SmallVector<int64_t> shape(cast<RankedTensorType>(op.getResult().getType()).getShape());
    for (auto [n, expr] : llvm::enumerate(op.getResultMap().getResults()))
      if (expr == b.getAffineDimExpr(A::E))
        shape[n] = 1;
    parts.types = {RankedTensorType::get(shape, element)};
    parts.extras.clear();
    for (const Shown &one : shown) {
      SmallVector<unsigned> dims = dimsOf(one);
      SmallVector<AffineExpr> exprs;
      for (unsigned dim : dims)
        exprs.push_back(b.getAffineDimExpr(dim));
      parts.extras.push_back(ExtraAttr::get(b.getContext(), ExtraSource::final_weights, one.reduction));
      parts.maps.push_back(AffineMap::get(A::kDims, 0, exprs, b.getContext()));
      parts.types.push_back(typeOf(one, dims));
    }
    auto twin = AttentionOp::create(b, loc, parts);
    IRMapping mapping;
    for (auto [to, from] : llvm::zip_equal(twin->getRegions(), op->getRegions()))
      from.cloneInto(&to, mapping);
    return twin;
  }

  Value addMissingDims(const Shown &one, Value result) {
    SmallVector<unsigned> all;
    for (unsigned dim : {A::B, A::H, A::I, A::J})
      if (one.has(dim))
        all.push_back(dim);
    SmallVector<OpFoldResult> to;
    SmallVector<ReassociationIndices> groups;
    ReassociationIndices open;
    for (auto [n, dim] : llvm::enumerate(all)) {
      open.push_back(n);
      to.push_back(op.isNamed(dim) ? sizes[dim] : OpFoldResult(b.getIndexAttr(1)));
      if (op.isNamed(dim))
        groups.push_back(std::exchange(open, {}));
    }
    if (one.count) {
      open.push_back(all.size());
      to.push_back(b.getIndexAttr(countOf(one)));
      groups.push_back(std::exchange(open, {}));
    }
    llvm::append_range(groups.back(), open);
    auto type = typeOf(one, all);
    return type == result.getType() ? result : tensor::ExpandShapeOp::create(b, loc, type, result, groups, to);
  }

  AttentionOp op;
  ArrayRef<Shown> shown;
  OpBuilder b;
  Location loc;
  SmallVector<OpFoldResult> sizes;
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
    getOperation().walk([&](AttentionOp op) {
      if (llvm::is_contained(nodes, "all") || llvm::is_contained(nodes, nameOfNode(op)))
        attentions.push_back(op);
    });
    for (AttentionOp op : attentions)
      expose(op, shown);
    if (!attentions.empty())
      complete();
  }

private:
  /// What the fusion report says of an attention.
  struct Entry {
    StringRef node;
    SmallVector<std::string> outputs;
    StringRef reason;
  };

  void expose(AttentionOp op, ArrayRef<Shown> shown) {
    Entry &entry = entries.emplace_back();
    entry.node = nodeName(op.getLoc());
    auto function = op->getParentOfType<func::FuncOp>();
    entry.reason = whyNot(op);
    if (entry.reason.empty() && !function->hasAttr(AttnDialect::kEntryAttr))
      entry.reason = "it stands in a function that is not an entry";
    if (!entry.reason.empty())
      return;
    Operation *end = function.getBody().front().getTerminator();
    SmallVector<Value> outputs = Exposer(op, shown).expose();
    for (auto [one, output] : llvm::zip_equal(shown, outputs)) {
      std::string name = uniqueName(function, (nameOfNode(op) + "." + one.suffix).str());
      entry.outputs.push_back(name);
      addOutput(function, end, output, name);
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

  void addOutput(func::FuncOp function, Operation *end, Value output, StringRef name) {
    Builder b(&getContext());
    auto type = cast<RankedTensorType>(output.getType());
    bool isDouble = type.getElementType().isF64();
    StringRef dtype = isa<IntegerType>(type.getElementType()) ? "int64" : isDouble ? "float64" : "float32";
    auto attrs = b.getDictionaryAttr({
        b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
        b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtype)),
        b.getNamedAttr(AttnDialect::kDimsAttr, b.getStrArrayAttr(SmallVector<StringRef>(type.getRank(), ""))),
    });
    (void)function.insertResult(function.getNumResults(), type, attrs);
    end->insertOperands(end->getNumOperands(), output);
  }

  /// Adds `exposed` or `not_exposed` to the verdicts, which stand in the order of the attentions of one name.
  void complete() {
    Builder b(&getContext());
    for (const Entry &entry : entries)
      editVerdict(
          getOperation(), entry.node, [](DictionaryAttr known, size_t) { return !known.contains("not_exposed"); },
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

  SmallVector<AttentionOp> attentions;
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
