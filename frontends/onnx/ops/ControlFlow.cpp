#include "frontends/onnx/Graph.h"
#include "frontends/onnx/LoopImport.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

//===----------------------------------------------------------------------===//
// If
//===----------------------------------------------------------------------===//

namespace {
/// A branch that is imported: its op stands in the outer block until scf.if
/// takes its region.
struct Branch {
  Operation *region = nullptr;
  std::vector<Tensor> outputs;               // the tensors of a sequence one by one
  SmallVector<std::optional<size_t>> counts; // for each output of the node; of a sequence, how many it has
};

/// One output of both branches.
struct Joined {
  Tensor tensor;
  Value values[2]; // in the branches; null where `tensor` has its elements
  unsigned result = 0;
};
} // namespace

/// What a branch makes, with the tensors of sequences one by one.
static LogicalResult spreadOutputs(Node &node, ArrayRef<Tensor> outputs, Branch &branch) {
  for (const Tensor &t : outputs) {
    if (t.sequence && t.sequence->stack)
      return node.unsupported() << "makes a sequence whose length is not known at import in a branch that only the run "
                                   "chooses",
             failure();
    branch.counts.push_back(t.sequence ? std::optional(t.sequence->items.size()) : std::nullopt);
    if (t.sequence)
      llvm::append_range(branch.outputs, t.sequence->items);
    else
      branch.outputs.push_back(t);
  }
  return success();
}

/// Imports a branch whose condition only the run knows.
static LogicalResult importBranch(Node &node, StringRef name, Branch &branch) {
  const Subgraph *graph = node.subgraph(name);
  if (!graph)
    return failure();
  branch.region = node.enterRegion();
  FailureOr<std::vector<Tensor>> outputs = node.importSubgraph(*graph, {});
  bool done = succeeded(outputs) && succeeded(spreadOutputs(node, *outputs, branch));
  if (done) {
    for (Tensor &t : branch.outputs) {
      for (Expr &size : t.shape)
        size = node.symbols().simplify(size);
      bool isKnown = t.elements && llvm::all_of(*t.elements, [&](const Scalar &element) {
                       const Expr *expr = std::get_if<Expr>(&element);
                       return !expr || node.symbols().outlivesHome(*expr);
                     });
      if (!isKnown) {
        t.value = node.value(t);
        t.elements.reset();
      }
    }
  }
  node.leaveRegion(branch.region);
  return success(done);
}

/// The elements of an output when both branches know them and the outer code
/// can choose between them.
static std::optional<SmallVector<Scalar, 4>> joinElements(Node &node, const Expr &condition, const Tensor &a,
                                                          const Tensor &b) {
  if (!a.elements || !b.elements || a.elements->size() != b.elements->size() || a.shape != b.shape)
    return std::nullopt;
  SmallVector<Scalar, 4> result;
  for (auto [x, y] : llvm::zip_equal(*a.elements, *b.elements)) {
    if (const double *constant = std::get_if<double>(&x)) {
      if (*constant != std::get<double>(y))
        return std::nullopt;
      result.push_back(x);
    } else {
      result.push_back(node.symbols().select(condition, std::get<Expr>(x), std::get<Expr>(y)));
    }
  }
  return result;
}

static FailureOr<Joined> joinOutput(Node &node, size_t i, const Expr &condition, const Tensor &a, const Tensor &b) {
  if (a.dtype != b.dtype)
    return node.error() << "output " << i << " is " << dtypeName(a.dtype) << " in one branch, " << dtypeName(b.dtype)
                        << " in the other",
           failure();
  if (a.rank() != b.rank())
    return node.unsupported() << "output " << i << " has " << a.rank() << " dimensions in one branch, " << b.rank()
                              << " in the other, and only the run chooses",
           failure();
  Joined joined;
  joined.tensor.dtype = a.dtype;
  if (auto elements = joinElements(node, condition, a, b)) {
    joined.tensor.shape = a.shape;
    joined.tensor.elements = std::move(elements);
    return joined;
  }
  Symbols &symbols = node.symbols();
  for (auto [x, y] : llvm::zip_equal(a.shape, b.shape)) {
    // A size that is only known within its branch stays unknown here.
    if (!symbols.isVisible(x) || !symbols.isVisible(y))
      joined.tensor.shape.push_back(Expr::overflow());
    else if (symbols.isEqual(x, y) == true)
      joined.tensor.shape.push_back(x);
    else
      joined.tensor.shape.push_back(symbols.select(condition, x, y));
  }
  return joined;
}

/// scf.if of two branches; the outputs that are not known by their elements.
static void finishIf(Node &node, const Expr &condition, Branch (&branches)[2], MutableArrayRef<Joined> outputs) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  SmallVector<Type> types;
  for (auto [i, joined] : llvm::enumerate(outputs)) {
    if (joined.tensor.elements)
      continue;
    Type type = node.type(joined.tensor.dtype, joined.tensor.shape);
    joined.result = types.size();
    types.push_back(type);
    for (auto [branch, value] : llvm::zip_equal(branches, joined.values)) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(&branch.region->getRegion(0).front());
      value = node.value(branch.outputs[i]);
      if (value.getType() != type)
        value = tensor::CastOp::create(b, loc, type, value);
    }
  }
  Value number = node.symbols().materialize(b, loc, condition);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, number, zero);
  auto op = scf::IfOp::create(b, loc, types, holds, /*addThenBlock=*/false, /*addElseBlock=*/false);
  for (unsigned n : {0u, 1u}) {
    Region &region = op->getRegion(n);
    region.takeBody(branches[n].region->getRegion(0));
    branches[n].region->erase();
    SmallVector<Value> yielded;
    for (const Joined &joined : outputs)
      if (!joined.tensor.elements)
        yielded.push_back(joined.values[n]);
    OpBuilder inner = OpBuilder::atBlockEnd(&region.front());
    scf::YieldOp::create(inner, loc, yielded);
  }
  for (Joined &joined : outputs) {
    if (joined.tensor.elements)
      continue;
    joined.tensor.value = op.getResult(joined.result);
    for (auto [dim, size] : llvm::enumerate(joined.tensor.shape))
      if (size.overflowed())
        size = node.symbols().opaque(tensor::DimOp::create(b, loc, joined.tensor.value, dim), 0);
  }
}

/// An If whose condition only the run knows.
static LogicalResult importOpenIf(Node &node, const Expr &condition) {
  Branch branches[2];
  if (failed(importBranch(node, "then_branch", branches[0])) || failed(importBranch(node, "else_branch", branches[1])))
    return failure();
  for (const Branch &branch : branches)
    if (branch.counts.size() < node.numOutputs())
      return node.error() << "has " << node.numOutputs() << " outputs, a branch " << branch.counts.size(), failure();
  SmallVector<Joined, 0> joined;
  for (size_t i = 0; i < node.numOutputs(); ++i) {
    const std::optional<size_t> counts[] = {branches[0].counts[i], branches[1].counts[i]};
    if (counts[0] != counts[1])
      return node.unsupported() << "output " << i << " has " << counts[0].value_or(1) << " tensors in one branch, "
                                << counts[1].value_or(1) << " in the other, and only the run chooses",
             failure();
    for (size_t end = joined.size() + counts[0].value_or(1); joined.size() < end;) {
      size_t at = joined.size();
      FailureOr<Joined> both = joinOutput(node, i, condition, branches[0].outputs[at], branches[1].outputs[at]);
      if (failed(both))
        return failure();
      joined.push_back(std::move(*both));
    }
  }
  finishIf(node, condition, branches, joined);
  size_t at = 0;
  for (size_t i = 0; i < node.numOutputs(); ++i) {
    std::optional<size_t> count = branches[0].counts[i];
    if (!count) {
      node.setOutput(i, joined[at++].tensor);
      continue;
    }
    Sequence sequence;
    for (size_t end = at + *count; at < end; ++at) {
      sequence.dtype = joined[at].tensor.dtype;
      sequence.items.push_back(joined[at].tensor);
    }
    Tensor t;
    t.sequence = std::make_shared<const Sequence>(std::move(sequence));
    node.setOutput(i, std::move(t));
  }
  return success();
}

static LogicalResult importIf(Node &node) {
  std::optional<SmallVector<Expr>> condition = node.exprs(0);
  if (!condition || condition->size() != 1 || node.input(0).dtype != DType::Bool)
    return node.error() << "expects a condition of one bool", failure();
  if (std::optional<int64_t> known = (*condition)[0].constant()) {
    const Subgraph *graph = node.subgraph(*known ? "then_branch" : "else_branch");
    if (!graph)
      return failure();
    FailureOr<std::vector<Tensor>> outputs = node.importSubgraph(*graph, {});
    if (failed(outputs))
      return failure();
    if (outputs->size() < node.numOutputs())
      return node.error() << "has " << node.numOutputs() << " outputs, its branch " << outputs->size(), failure();
    for (size_t i = 0; i < node.numOutputs(); ++i)
      node.setOutput(i, (*outputs)[i]);
    return success();
  }
  return importOpenIf(node, (*condition)[0]);
}

//===----------------------------------------------------------------------===//
// Loop, Scan
//===----------------------------------------------------------------------===//

static LogicalResult setOutputs(Node &node, const FailureOr<std::vector<Tensor>> &outputs) {
  if (failed(outputs))
    return failure();
  for (auto [n, output] : llvm::enumerate(*outputs))
    node.setOutput(n, output);
  return success();
}

static LogicalResult importLoop(Node &node) {
  const Subgraph *body = node.subgraph("body");
  if (!body)
    return failure();
  LoopImport loop(node, *body);
  auto single = [&](size_t i, StringRef what) -> std::optional<Expr> {
    std::optional<SmallVector<Expr>> numbers = node.exprs(i);
    if (numbers && numbers->size() == 1)
      return (*numbers)[0];
    node.error() << "expects its " << what << " to be one number";
    return std::nullopt;
  };
  if (node.hasInput(0) && !(loop.trips = single(0, "trip count")))
    return failure();
  loop.condition = Expr(1);
  if (node.hasInput(1) && !(loop.condition = single(1, "condition")))
    return failure();
  for (size_t i = 2; i < node.numInputs(); ++i) {
    Carried &value = loop.carried.emplace_back();
    if (!node.isSequence(i)) {
      value.init = node.input(i);
      continue;
    }
    value.init.sequence = std::make_shared<Sequence>(*node.sequence(i));
  }
  if (body->outputs.size() < 1 + loop.carried.size() || node.numOutputs() > body->outputs.size() - 1)
    return node.error() << "carries " << loop.carried.size() << " values and has " << node.numOutputs()
                        << " outputs, but its body " << body->outputs.size(),
           failure();
  loop.gathered.resize(body->outputs.size() - 1 - loop.carried.size());
  return setOutputs(node, loop.run());
}

/// An attribute with one number for each of `count` inputs or outputs, or
/// zeros.
static FailureOr<SmallVector<int64_t>> perScanned(Node &node, StringRef name, size_t count) {
  SmallVector<int64_t> values = node.intsAttr(name).value_or(SmallVector<int64_t>(count, 0));
  if (values.size() != count)
    return node.error() << "attribute '" << name << "' has " << values.size() << " numbers for " << count << " values",
           failure();
  return values;
}

/// Of those, the directions: 0, or 1 for backwards.
static FailureOr<SmallVector<int64_t>> scanDirections(Node &node, StringRef name, size_t count) {
  FailureOr<SmallVector<int64_t>> values = perScanned(node, name, count);
  if (succeeded(values))
    for (int64_t value : *values)
      if (value != 0 && value != 1)
        return node.error() << "attribute '" << name << "' has " << value << ", expected 0 or 1", failure();
  return values;
}

namespace {
struct ScanForm {
  const Subgraph *body;
  size_t states, count, gathered; // carried values, scanned inputs, scanned outputs
};
} // namespace

/// How the inputs from `first` on and the outputs are divided.
static FailureOr<ScanForm> readScan(Node &node, int64_t first) {
  const Subgraph *body = node.subgraph("body");
  if (!body)
    return failure();
  int64_t count = node.intAttr("num_scan_inputs", 0), inputs = int64_t(node.numInputs()) - first;
  if (count < 1 || count > inputs || int64_t(body->outputs.size()) < inputs - count)
    return node.error() << "has " << inputs << " inputs, num_scan_inputs " << count << " and a body of "
                        << body->outputs.size() << " outputs",
           failure();
  if (node.numOutputs() > body->outputs.size())
    return node.error() << "has " << node.numOutputs() << " outputs, its body " << body->outputs.size(), failure();
  size_t states = inputs - count;
  return ScanForm{body, states, size_t(count), body->outputs.size() - states};
}

static LogicalResult importScan9(Node &node) {
  FailureOr<ScanForm> form = readScan(node, 0);
  if (failed(form))
    return failure();
  const Subgraph *body = form->body;
  size_t states = form->states, count = form->count, gathered = form->gathered;
  auto axes = perScanned(node, "scan_input_axes", count),
       backwards = scanDirections(node, "scan_input_directions", count),
       outAxes = perScanned(node, "scan_output_axes", gathered),
       outBackwards = scanDirections(node, "scan_output_directions", gathered);
  if (failed(axes) || failed(backwards) || failed(outAxes) || failed(outBackwards))
    return failure();
  LoopImport loop(node, *body);
  for (size_t i = 0; i < states; ++i)
    loop.carried.emplace_back().init = node.input(i);
  for (size_t i = 0; i < count; ++i) {
    Scanned &input = loop.scanned.emplace_back();
    input.tensor = node.input(states + i);
    input.tensor.value = node.value(input.tensor);
    FailureOr<int64_t> axis = node.axis((*axes)[i], input.tensor.rank());
    if (failed(axis))
      return failure();
    input.axis = *axis;
    input.isReversed = (*backwards)[i] != 0;
    const Expr &size = input.tensor.shape[*axis];
    if (!loop.trips)
      loop.trips = size;
    else if (failed(node.requireEqual(*loop.trips, size, "scans inputs of lengths {0} and {1}")))
      return failure();
  }
  for (size_t i = 0; i < gathered; ++i) {
    Gathered &output = loop.gathered.emplace_back();
    output.axis = (*outAxes)[i];
    output.isReversed = (*outBackwards)[i] != 0;
  }
  return setOutputs(node, loop.run());
}

/// Opset 8: all has a batch dimension in front, of which the body knows nothing;
/// what is scanned is scanned along dimension 1.
static LogicalResult importScan8(Node &node) {
  if (node.hasInput(0))
    return node.unsupported() << "gives sequence_lens, which Scan has in opset 8 only", failure();
  FailureOr<ScanForm> form = readScan(node, 1);
  if (failed(form))
    return failure();
  const Subgraph *body = form->body;
  size_t states = form->states, count = form->count, gathered = form->gathered;
  auto backwards = scanDirections(node, "directions", count);
  if (failed(backwards))
    return failure();
  LoopImport batch(node, [&](ArrayRef<Tensor> slices) {
    LoopImport loop(node, *body);
    for (size_t i = 0; i < states; ++i)
      loop.carried.emplace_back().init = slices[i];
    for (size_t i = 0; i < count; ++i)
      loop.scanned.push_back({slices[states + i], 0, (*backwards)[i] != 0});
    loop.trips = slices[states].shape[0];
    loop.gathered.resize(gathered);
    return loop.run();
  });
  for (size_t i = 0; i < states + count; ++i) {
    Tensor t = node.input(i + 1);
    int64_t least = i < states ? 1 : 2;
    if (t.rank() < least)
      return node.error() << "input " << i + 1 << " has " << t.rank() << " dimensions, at least " << least
                          << " are needed",
             failure();
    t.value = node.value(t);
    t.elements.reset();
    auto same = [&](int64_t dim, const Expr &first) {
      return node.requireEqual(first, t.shape[dim], "scans inputs of sizes {0} and {1}");
    };
    if (i > 0 && failed(same(0, batch.scanned[0].tensor.shape[0])))
      return failure();
    if (i > states && failed(same(1, batch.scanned[states].tensor.shape[1])))
      return failure();
    batch.scanned.push_back({t, 0, false});
  }
  batch.trips = batch.scanned[0].tensor.shape[0];
  batch.gathered.resize(states + gathered);
  return setOutputs(node, batch.run());
}

void attn::onnx::registerControlFlowOps(OpRegistry &registry) {
  registry.add("If", {1, 11, 13, 16, 19, 21, 23, 24, 25}, importIf);
  registry.add("Loop", {1, 11, 13, 16, 19, 21, 23, 24, 25}, importLoop);
  registry.add("Scan", {8}, importScan8);
  registry.add("Scan", {9, 11, 16, 19, 21, 23, 24, 25}, importScan9);
}
