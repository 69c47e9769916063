#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <cstring>

// TreeEnsemble of ai.onnx.ml: each row of X goes down each tree, all trees equally many steps (a leaf is its own
// successor), and what the leaves say is summed.

using namespace mlir;

namespace attn::onnx {
namespace {

enum Mode { AtMost, Less, AtLeast, Greater, Equal, Different, Member };

struct TreeNode {
  int64_t feature, mode;
  double split;
  bool missingIsTrue;
  int64_t next[2]; // where the comparison is false, and where it is true; leaves stand behind the inner nodes
};

struct Forest {
  SmallVector<TreeNode> nodes;
  SmallVector<int64_t> roots, targets; // a target for each leaf
  SmallVector<double> weights;
  int64_t numTargets, features = 0, depth = 0;
};

//===----------------------------------------------------------------------===//
// Reading the attributes
//===----------------------------------------------------------------------===//

/// The tensor attribute `name` as numbers: floats of 32 or 64 bits, or bytes.
std::optional<SmallVector<double>> numbersOf(Node &n, StringRef name) {
  std::optional<Tensor> tensor = n.tensorAttr(name);
  std::optional<std::vector<char>> bytes;
  if (tensor)
    bytes = n.constantBytes(*tensor);
  if (!bytes || !llvm::is_contained({DType::F32, DType::F64, DType::U8}, tensor->dtype))
    return std::nullopt;
  SmallVector<double> result;
  auto read = [&](auto sample) {
    for (size_t at = 0; at + sizeof sample <= bytes->size(); at += sizeof sample) {
      std::memcpy(&sample, bytes->data() + at, sizeof sample);
      result.push_back(sample);
    }
  };
  if (tensor->dtype == DType::F32)
    read(float());
  else if (tensor->dtype == DType::F64)
    read(double());
  else
    read(uint8_t());
  return result;
}

/// A node that asks whether x is one of some numbers becomes a node for each, of which each asks for its own.
LogicalResult expandMembers(Node &n, Forest &forest) {
  std::optional<SmallVector<double>> members;
  if (n.hasAttr("membership_values"))
    members = numbersOf(n, "membership_values");
  size_t at = 0;
  for (size_t i = 0, count = forest.nodes.size(); i < count; ++i) {
    if (forest.nodes[i].mode != Member)
      continue;
    SmallVector<double> own;
    for (; members && at < members->size() && !std::isnan((*members)[at]); ++at)
      own.push_back((*members)[at]);
    ++at; // a NaN ends each list
    if (own.empty())
      return n.error() << "has no membership_values for node " << i << " of its trees";
    forest.nodes[i].mode = Equal;
    size_t last = i;
    for (auto [k, value] : llvm::enumerate(own)) {
      if (k > 0) {
        TreeNode copy = forest.nodes[last];
        forest.nodes[last].next[0] = -1 - static_cast<int64_t>(forest.nodes.size()); // a new inner node
        forest.nodes.push_back(copy);
        last = forest.nodes.size() - 1;
      }
      forest.nodes[last].split = value;
    }
  }
  return success();
}

/// Numbers of nodes become places: inner nodes, then leaves. Sets the depth; an error where a node is its own ancestor.
LogicalResult placeNodes(Node &n, Forest &forest, int64_t given) {
  int64_t inner = forest.nodes.size();
  for (TreeNode &node : forest.nodes)
    for (int64_t &next : node.next)
      next = next < 0 ? -1 - next : next >= given ? next - given + inner : next;
  SmallVector<int64_t> level = forest.roots;
  for (int64_t steps = 0; !level.empty(); ++steps) {
    SmallVector<int64_t> below;
    for (int64_t node : level)
      if (node < inner)
        below.append(forest.nodes[node].next, forest.nodes[node].next + 2);
    if (steps > inner)
      return n.error() << "has a tree of which a node is below itself";
    llvm::sort(below);
    below.erase(std::unique(below.begin(), below.end()), below.end());
    forest.depth = below.empty() ? steps : steps + 1;
    level = std::move(below);
  }
  return success();
}

FailureOr<Forest> readForest(Node &n) {
  Forest forest;
  std::optional<SmallVector<int64_t>> features = n.intsAttr("nodes_featureids"), roots = n.intsAttr("tree_roots");
  std::optional<SmallVector<int64_t>> targets = n.intsAttr("leaf_targetids");
  std::optional<SmallVector<double>> modes = numbersOf(n, "nodes_modes"), splits = numbersOf(n, "nodes_splits");
  std::optional<SmallVector<double>> weights = numbersOf(n, "leaf_weights");
  SmallVector<int64_t> next[2], isLeaf[2],
      missing = n.intsAttr("nodes_missing_value_tracks_true").value_or(SmallVector<int64_t>());
  for (auto [side, name] : {std::pair(0, std::string("false")), std::pair(1, std::string("true"))}) {
    next[side] = n.intsAttr("nodes_" + name + "nodeids").value_or(SmallVector<int64_t>());
    isLeaf[side] = n.intsAttr("nodes_" + name + "leafs").value_or(SmallVector<int64_t>());
  }
  if (!features || !roots || !targets || !modes || !splits || !weights)
    return n.error() << "has not all of nodes_featureids, nodes_modes, nodes_splits, tree_roots, leaf_targetids and "
                        "leaf_weights";
  size_t count = features->size();
  for (size_t size : {modes->size(), splits->size(), next[0].size(), next[1].size(), isLeaf[0].size(), isLeaf[1].size(),
                      missing.empty() ? count : missing.size()})
    if (size != count)
      return n.error() << "describes " << count << " nodes by nodes_featureids and " << size << " elsewhere";
  forest.numTargets = n.intAttr("n_targets", 1);
  int64_t leaves = targets->size();
  if (forest.numTargets < 1 || weights->size() != targets->size())
    return n.error() << "expects at least one target and a weight for each leaf, has " << forest.numTargets << ", and "
                     << weights->size() << " weights for " << leaves << " leaves";
  auto isOutside = [](int64_t i, int64_t size) { return i < 0 || i >= size; };
  for (size_t i = 0; i < count; ++i) {
    TreeNode node{(*features)[i], static_cast<int64_t>((*modes)[i]), (*splits)[i], !missing.empty() && missing[i], {}};
    for (int side : {0, 1}) {
      if (isOutside(next[side][i], isLeaf[side][i] ? leaves : count) || node.mode > Member ||
          isOutside(node.feature, INT32_MAX))
        return n.error() << "node " << i << " of its trees goes to " << next[side][i] << ", has mode " << node.mode
                         << " and feature " << node.feature << "; there are " << count << " nodes and " << leaves
                         << " leaves";
      node.next[side] = next[side][i] + (isLeaf[side][i] ? count : 0);
    }
    forest.features = std::max(forest.features, node.feature + 1);
    forest.nodes.push_back(node);
  }
  for (int64_t root : *roots)
    if (isOutside(root, count))
      return n.error() << "has a tree that begins at node " << root << " of " << count;
  for (int64_t target : *targets)
    if (isOutside(target, forest.numTargets))
      return n.error() << "has a leaf for target " << target << " of " << forest.numTargets;
  forest.roots = *roots;
  forest.targets = *targets;
  forest.weights = *weights;
  if (failed(expandMembers(n, forest)) || failed(placeNodes(n, forest, count)))
    return failure();
  return forest;
}

//===----------------------------------------------------------------------===//
// Going down the trees
//===----------------------------------------------------------------------===//

Value integerTable(Node &n, ArrayRef<int64_t> numbers) {
  return n.value(n.constantTensor(DType::I64, static_cast<int64_t>(numbers.size()),
                                  {reinterpret_cast<const char *>(numbers.data()), numbers.size() * 8}));
}

Value floatTable(Node &n, DType dtype, ArrayRef<double> numbers) {
  SmallVector<float> narrow(numbers);
  bool isWide = dtype == DType::F64;
  const void *data = isWide ? static_cast<const void *>(numbers.data()) : narrow.data();
  return n.value(n.constantTensor(dtype, static_cast<int64_t>(numbers.size()),
                                  {static_cast<const char *>(data), numbers.size() * dtypeBytes(dtype)}));
}

/// Whether x goes on where the comparison is true.
Num decide(const Num &x, const Num &split, const Num &mode, const Num &missingIsTrue) {
  Num result = x <= split;
  const std::pair<Mode, Num> others[] = {
      {Less, x < split}, {AtLeast, x >= split}, {Greater, x > split}, {Equal, x == split}, {Different, !(x == split)}};
  for (const auto &[which, answer] : others)
    result = select(mode == mode.constant(which), answer, result);
  return result | (isNaN(x) & (missingIsTrue == missingIsTrue.constant(1)));
}

/// [rows, trees]: the leaf that each row comes to.
Value leavesOf(Node &n, const Tensor &x, DType wide, const Forest &forest) {
  int64_t inner = forest.nodes.size(), all = inner + forest.targets.size();
  SmallVector<int64_t> features(all, 0), modes(all, 0), missing(all, 0), next[2];
  SmallVector<double> splits(all, 0);
  for (int64_t i = 0; i < all; ++i) {
    bool isInner = i < inner;
    if (isInner) {
      const TreeNode &node = forest.nodes[i];
      features[i] = node.feature;
      modes[i] = node.mode;
      missing[i] = node.missingIsTrue;
      splits[i] = node.split;
    }
    for (int side : {0, 1})
      next[side].push_back(isInner ? forest.nodes[i].next[side] : i);
  }
  Value featureTable = integerTable(n, features), modeTable = integerTable(n, modes);
  Value missingTable = integerTable(n, missing), splitTable = floatTable(n, wide, splits);
  Value nextTables[] = {integerTable(n, next[0]), integerTable(n, next[1])}, roots = integerTable(n, forest.roots);
  Value numbers = n.value(x), depth = arith::ConstantIndexOp::create(n.builder(), n.loc(), forest.depth);
  SmallVector<Expr> shape{x.shape[0], Expr(static_cast<int64_t>(forest.roots.size()))};
  return n.generate(DType::I64, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto step = [&](OpBuilder &b, Location loc, ValueRange, ValueRange carried) -> SmallVector<Value> {
      Value node = arith::IndexCastOp::create(b, loc, b.getIndexType(), carried[0]);
      auto entry = [&](Value table) { return load(b, loc, table, DType::I64, node); };
      Value feature = arith::IndexCastOp::create(b, loc, b.getIndexType(), entry(featureTable).value());
      Num element = convert(load(b, loc, numbers, x.dtype, {at[0], feature}), wide);
      Num holds = decide(element, load(b, loc, splitTable, wide, node), entry(modeTable), entry(missingTable));
      return {select(holds, entry(nextTables[1]), entry(nextTables[0])).value()};
    };
    return sequential(b, loc, depth, load(b, loc, roots, DType::I64, at[1]).value(), step)[0];
  });
}

/// [rows, targets]: what the leaves of all trees say together.
Tensor scoresOf(Node &n, const Tensor &x, DType wide, const Forest &forest, int64_t how) {
  enum { Average, Sum, Least, Greatest };
  Value leaves = leavesOf(n, x, wide, forest);
  Value targets = integerTable(n, forest.targets), weights = floatTable(n, wide, forest.weights);
  int64_t inner = forest.nodes.size(), trees = forest.roots.size();
  Value count = arith::ConstantIndexOp::create(n.builder(), n.loc(), trees);
  Tensor scores;
  scores.dtype = wide;
  scores.shape.append({x.shape[0], Expr(forest.numTargets)});
  scores.value = n.generate(wide, scores.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num target = fromIndex(b, loc, DType::I64, at[1]);
    auto add = [&](OpBuilder &b, Location loc, ValueRange tree, ValueRange carried) -> SmallVector<Value> {
      Num leaf = load(b, loc, leaves, DType::I64, {at[0], tree[0]}) - target.constant(inner);
      Value place = arith::IndexCastOp::create(b, loc, b.getIndexType(), leaf.value());
      Num so(b, loc, wide, carried[0]), any(b, loc, DType::Bool, carried[1]),
          weight = load(b, loc, weights, wide, place);
      Num joined = how == Least ? minimum(so, weight) : how == Greatest ? maximum(so, weight) : so + weight;
      Num isMine = load(b, loc, targets, DType::I64, place) == target;
      if (how == Least || how == Greatest)
        joined = select(any, joined, weight);
      return {select(isMine, joined, so).value(), (any | isMine).value()};
    };
    Num zero = constantNum(b, loc, wide, 0.0), none = constantNum(b, loc, DType::Bool, int64_t(0));
    Value inits[] = {zero.value(), none.value()};
    Num all(b, loc, wide, sequential(b, loc, count, inits, add)[0]);
    return (how == Average ? all / double(trees) : all).value();
  });
  return scores;
}

LogicalResult importTreeEnsemble(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t how = n.intAttr("aggregate_function", 1), after = n.intAttr("post_transform", 0);
  if (x.rank() != 2 || how < 0 || how > 3)
    return n.error() << "expects X of rank 2 and an aggregate_function in 0 to 3, has rank " << x.rank() << " and "
                     << how;
  if (after < 0 || after > 2)
    return n.unsupported() << "post_transform " << after << " (0: none, 1: softmax and 2: logistic are there)";
  FailureOr<Forest> forest = readForest(n);
  if (failed(forest) ||
      failed(n.requireAtMost(Expr(forest->features), x.shape[1], "the trees ask for {0} features of {1}")))
    return failure();
  Tensor y = scoresOf(n, x, computeDType(x.dtype), *forest, how);
  if (after == 1)
    y.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(y), 1, /*log=*/false);
  if (after == 2) {
    FailureOr<Tensor> squashed = formula(n, y.dtype, {y}, [](ArrayRef<Num> v) { return sigmoid(v[0]); });
    if (failed(squashed))
      return failure();
    y = *squashed;
  }
  n.setOutput(0, n.cast(y, x.dtype));
  return success();
}

} // namespace

void registerTreeOps(OpRegistry &registry) { registry.add("TreeEnsemble", {5}, importTreeEnsemble, "ai.onnx.ml"); }

} // namespace attn::onnx
