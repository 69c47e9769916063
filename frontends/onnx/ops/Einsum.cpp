#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

// Einsum: operands are joined two at a time, left to right. A label that no
// later operand and not the result needs is summed as early as possible.

using namespace mlir;

namespace attn::onnx {
namespace {

/// A letter is its code; the dimensions of an ellipsis count from the right.
constexpr Label kEllipsis = 1000;

struct Equation {
  std::vector<SmallVector<Label>> operands;
  SmallVector<Label> result;
};

/// Labels of one term. `rank` is that of the operand; for the result, which
/// has none, `ellipsis` says how many dimensions "..." stands for.
FailureOr<SmallVector<Label>> parseTerm(Node &n, StringRef term, std::optional<int64_t> rank, int64_t ellipsis) {
  SmallVector<Label> labels;
  size_t dots = term.find("...");
  int64_t letters = int64_t(term.size()) - (dots == StringRef::npos ? 0 : 3);
  if (rank) {
    ellipsis = *rank - letters;
    if (ellipsis < 0 || (dots == StringRef::npos && ellipsis != 0))
      return n.error() << "term '" << term << "' has " << letters << " labels, the operand has rank " << *rank;
  }
  for (size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (int64_t d = ellipsis - 1; d >= 0; --d)
        labels.push_back(kEllipsis + d);
      i += 2;
    } else if (llvm::isAlpha(term[i])) {
      labels.push_back(term[i]);
    } else {
      return n.error() << "term '" << term << "' has '" << term.substr(i, 1) << "' where a letter should be";
    }
  }
  return labels;
}

/// Without "->": the ellipsis, then each letter that occurs once, in order.
SmallVector<Label> implicitResult(const Equation &equation, int64_t ellipsis) {
  std::map<Label, int> count;
  for (ArrayRef<Label> labels : equation.operands)
    for (Label label : labels)
      ++count[label];
  SmallVector<Label> result;
  for (int64_t d = ellipsis - 1; d >= 0; --d)
    result.push_back(kEllipsis + d);
  for (auto [label, times] : count)
    if (label < kEllipsis && times == 1)
      result.push_back(label);
  return result;
}

FailureOr<Equation> parseEquation(Node &n) {
  std::string text = n.stringAttr("equation", "");
  llvm::erase(text, ' ');
  auto [left, right] = StringRef(text).split("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (terms.size() != n.numInputs())
    return n.error() << "equation '" << text << "' has " << terms.size() << " terms, the node " << n.numInputs()
                     << " inputs";
  Equation equation;
  int64_t ellipsis = 0;
  for (auto [i, term] : llvm::enumerate(terms)) {
    FailureOr<SmallVector<Label>> labels = parseTerm(n, term, n.input(i).rank(), 0);
    if (failed(labels))
      return failure();
    ellipsis = std::max<int64_t>(ellipsis, llvm::count_if(*labels, [](Label l) { return l >= kEllipsis; }));
    equation.operands.push_back(*labels);
  }
  if (!StringRef(text).contains("->")) {
    equation.result = implicitResult(equation, ellipsis);
    return equation;
  }
  FailureOr<SmallVector<Label>> result = parseTerm(n, right, std::nullopt, ellipsis);
  if (failed(result))
    return failure();
  equation.result = *result;
  std::set<Label> seen;
  for (Label label : *result) {
    if (!seen.insert(label).second)
      return n.error() << "label '" << std::string(1, char(label)) << "' occurs twice in the result of '" << text
                       << "'";
    if (llvm::none_of(equation.operands, [&](const auto &labels) { return llvm::is_contained(labels, label); }))
      return n.error() << "label '" << std::string(1, char(label)) << "' of the result is in no term of '" << text
                       << "'";
  }
  return equation;
}

/// The diagonal of dimensions that have one label.
FailureOr<LabelledTensor> diagonal(Node &n, const Tensor &t, ArrayRef<Label> labels) {
  LabelledTensor out{t, {}};
  SmallVector<AffineExpr> source;
  OpBuilder &b = n.builder();
  out.tensor.shape.clear();
  for (auto [label, dim] : llvm::zip_equal(labels, t.shape)) {
    auto *at = llvm::find(out.labels, label);
    source.push_back(b.getAffineDimExpr(at - out.labels.begin()));
    if (at == out.labels.end()) {
      out.labels.push_back(label);
      out.tensor.shape.push_back(dim);
    } else if (failed(n.requireEqual(out.tensor.shape[at - out.labels.begin()], dim,
                                     "sizes {0} and {1} of a diagonal differ"))) {
      return failure();
    }
  }
  if (out.labels.size() == labels.size())
    return LabelledTensor{t, out.labels};
  size_t rank = out.labels.size();
  AffineMap maps[] = {AffineMap::get(rank, 0, source, b.getContext()), b.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value init = n.empty(t.dtype, out.tensor.shape);
  auto copy = [](OpBuilder &b, Location loc, ValueRange v) { linalg::YieldOp::create(b, loc, v[0]); };
  Value v = n.value(t);
  out.tensor.elements.reset();
  out.tensor.weight.clear();
  out.tensor.value = linalg::GenericOp::create(b, n.loc(), init.getType(), v, init, maps, iterators, copy).getResult(0);
  return out;
}

/// Sums the labels that `needed` does not have.
LabelledTensor sumOthers(Node &n, const LabelledTensor &t, llvm::function_ref<bool(Label)> needed) {
  SmallVector<int64_t> dims;
  SmallVector<Label> kept;
  for (auto [d, label] : llvm::enumerate(t.labels)) {
    if (needed(label))
      kept.push_back(label);
    else
      dims.push_back(d);
  }
  if (dims.empty())
    return t;
  return {n.cast(reduce(n, Combine::Sum, t.tensor, dims), t.tensor.dtype), kept};
}

/// `t` with its labels in the order of `out` and units where it has none.
FailureOr<Tensor> aligned(Node &n, const LabelledTensor &t, ArrayRef<Label> out) {
  SmallVector<int64_t> permutation;
  SmallVector<Expr, 4> shape;
  for (Label label : out) {
    auto *at = llvm::find(t.labels, label);
    if (at == t.labels.end()) {
      shape.push_back(Expr(1));
      continue;
    }
    permutation.push_back(at - t.labels.begin());
    shape.push_back(t.tensor.shape[permutation.back()]);
  }
  bool inOrder = llvm::is_sorted(permutation);
  return n.reshape(inOrder ? t.tensor : n.transpose(t.tensor, permutation), shape);
}

FailureOr<LabelledTensor> join(Node &n, LabelledTensor a, LabelledTensor b, ArrayRef<Label> out) {
  DType dtype = a.tensor.dtype;
  auto isOut = [&](Label label) { return llvm::is_contained(out, label); };
  a = sumOthers(n, a, [&](Label l) { return isOut(l) || llvm::is_contained(b.labels, l); });
  b = sumOthers(n, b, [&](Label l) { return isOut(l) || llvm::is_contained(a.labels, l); });
  FailureOr<Tensor> product = failure();
  if (llvm::any_of(a.labels, [&](Label l) { return !isOut(l); })) {
    product = contractLabels(n, dtype, a, b, out);
  } else {
    FailureOr<Tensor> x = aligned(n, a, out), y = aligned(n, b, out);
    if (succeeded(x) && succeeded(y))
      product = formula(n, dtype, {*x, *y}, [](ArrayRef<Num> v) { return v[0] * v[1]; });
  }
  if (failed(product))
    return failure();
  return LabelledTensor{*product, SmallVector<Label>(out)};
}

LogicalResult importEinsum(Node &n) {
  if (failed(expectInputs(n, std::max<size_t>(1, n.numInputs()))))
    return failure();
  FailureOr<Equation> equation = parseEquation(n);
  if (failed(equation))
    return failure();
  std::vector<LabelledTensor> operands;
  LabelSizes sizes;
  for (auto [i, labels] : llvm::enumerate(equation->operands)) {
    if (failed(expectSameDType(n, 0, i)))
      return failure();
    FailureOr<LabelledTensor> operand = diagonal(n, n.input(i), labels);
    if (failed(operand) || failed(collectSizes(n, *operand, sizes)))
      return failure();
    operands.push_back(*operand);
  }
  for (LabelledTensor &operand : operands) {
    FailureOr<LabelledTensor> dropped = dropBroadcast(n, operand, sizes);
    if (failed(dropped))
      return failure();
    operand = *dropped;
  }
  LabelledTensor result = operands.front();
  for (size_t i = 1; i < operands.size(); ++i) {
    SmallVector<Label> out;
    auto isNeeded = [&](Label label) {
      return llvm::is_contained(equation->result, label) ||
             llvm::any_of(llvm::drop_begin(operands, i + 1),
                          [&](const LabelledTensor &t) { return llvm::is_contained(t.labels, label); });
    };
    for (ArrayRef<Label> labels : {ArrayRef<Label>(result.labels), ArrayRef<Label>(operands[i].labels)})
      for (Label label : labels)
        if (isNeeded(label) && !llvm::is_contained(out, label))
          out.push_back(label);
    if (i + 1 == operands.size() && out.size() == equation->result.size())
      out = equation->result;
    FailureOr<LabelledTensor> joined = join(n, result, operands[i], out);
    if (failed(joined))
      return failure();
    result = *joined;
  }
  result = sumOthers(n, result, [&](Label l) { return llvm::is_contained(equation->result, l); });
  FailureOr<Tensor> y = aligned(n, result, equation->result);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerEinsumOps(OpRegistry &registry) { registry.add("Einsum", {12, 28}, importEinsum); }

} // namespace attn::onnx
