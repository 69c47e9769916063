#include "passes/graph/attention/AttentionBuilder.h"
#include "passes/graph/attention/ExposeSteps.h"

// Which axis of the graph's weights, batch, head, query or key, each dimension of an attention is: a size of 1 has no
// dimension, and heads that share their keys may be queries of it.

using namespace mlir;

namespace attn {

/// The rows of the tokens, where the attention stands in the loop of a search and dimension 0 of `access` is proved to
/// begin with them. Hypotheses that share their keys are queries of the attention, as heads are that do.
Atoms AttentionBuilder::rowsOfSearch(const Access &access) const {
  TraceOp trace = traceAround(match.result.value.getDefiningOp());
  if (!trace || access.empty())
    return {};
  Extent rows = Extent::of(OpFoldResult(trace.getCount())), product(1);
  Atoms found;
  for (unsigned atom : access.front()) {
    if (product == rows)
      break;
    found.push_back(atom);
    product = product * extent(atom);
  }
  return product == rows ? found : Atoms();
}

/// Whether no key differs along `dim`: the heads of a group.
bool AttentionBuilder::sharesKeys(unsigned dim) const {
  Atoms ofKey = flatten(match.key.access);
  return llvm::none_of(units[dim], [&](unsigned atom) { return llvm::is_contained(ofKey, atom); });
}

/// The atoms of each axis of the weights that are read at `access`, or nothing where that is not seen.
std::optional<SmallVector<Atoms>> AttentionBuilder::findAxes(const Access &access) const {
  using A = AttentionOp;
  auto isOf = [&](unsigned atom, unsigned dim) { return llvm::is_contained(units[dim], atom); };
  auto isAllOf = [&](const Atoms &atoms, unsigned dim) {
    return !atoms.empty() && llvm::all_of(atoms, [&](unsigned atom) { return isOf(atom, dim); });
  };
  SmallVector<Atoms> axes(4);
  Access others, rest(access);
  unsigned keyDims = 0;
  Atoms rows = rowsOfSearch(access);
  if (!rows.empty())
    rest.front().erase(rest.front().begin(), rest.front().begin() + rows.size());
  axes[A::B] = rows;
  for (const Atoms &atoms : rest) {
    if (!isAllOf(atoms, A::J)) {
      others.push_back(atoms);
      continue;
    }
    llvm::append_range(axes[A::J], atoms);
    ++keyDims;
  }
  if (keyDims == 0 && !others.empty() && others.back().empty()) // one key
    others.pop_back();
  // Queries stand last, in as many dimensions as keys do, or where the graph has put them.
  size_t end = others.size();
  if (end > 1 && others.back().empty()) {
    others.pop_back();
  } else if (end && isAllOf(others.back(), A::I)) {
    size_t first = end - 1;
    while (end - first < keyDims && first && isAllOf(others[first - 1], A::I))
      --first;
    for (const Atoms &atoms : ArrayRef(others).drop_front(first))
      llvm::append_range(axes[A::I], atoms);
    others.resize(first);
  } else {
    llvm::erase_if(others, [&](const Atoms &atoms) {
      bool isQuery = isAllOf(atoms, A::I);
      if (isQuery)
        llvm::append_range(axes[A::I], atoms);
      return isQuery;
    });
  }
  // Of what is left, batch stands first where one of them is of size 1 or no query puts both in order; else the
  // attention knows. What it calls b and h may both be heads behind a batch of 1: kv heads, and those of a group. A
  // group may be its b, and the batch a part of its h.
  bool hasUnit = llvm::any_of(others, [](const Atoms &atoms) { return atoms.empty(); });
  bool isNamed = !units[A::B].empty() && !units[A::H].empty();
  bool isBatchOfOne = others.size() > 1 && others.front().empty() && (others.size() == 2 || sharesKeys(A::H));
  auto hasHead = [&](const Atoms &atoms) {
    return llvm::any_of(atoms, [&](unsigned atom) { return isOf(atom, A::H); });
  };
  bool isGroup = isNamed && others.size() > 1 && isAllOf(others.front(), A::H) &&
                 llvm::any_of(llvm::drop_begin(others), hasHead) && sharesKeys(A::B);
  Atoms ordered = flatten(match.query.access);
  bool isOrdered = getScoreFormula(match.kind).hasKey &&
                   llvm::all_of(flatten(others), [&](unsigned atom) { return llvm::is_contained(ordered, atom); });
  bool byPlace = others.size() > 1 && (!isOrdered || isBatchOfOne || isGroup || (hasUnit && !isNamed));
  for (auto [n, atoms] : llvm::enumerate(others))
    for (unsigned atom : atoms) {
      if (isOf(atom, A::J))
        return std::nullopt;
      bool isBatch = rows.empty() && (byPlace ? n == 0 : isOf(atom, A::B) && !isGroup);
      axes[isBatch ? A::B : A::H].push_back(atom);
    }
  return axes;
}

/// The attribute that says so, or null where each dimension is the axis of its name, or it is not seen.
ArrayAttr AttentionBuilder::axesOfWeights(ArrayRef<AffineMap> maps) {
  Access access = match.weights.access;
  match.space.resolve(access);
  std::optional<SmallVector<Atoms>> axes = findAxes(access);
  if (!match.weights.value || !axes)
    return {};
  struct Part {
    unsigned axis, dim;
    Atoms atoms;
  };
  SmallVector<Part> parts;
  SmallVector<Atoms> found(4);
  for (auto [axis, atoms] : llvm::enumerate(*axes)) {
    // One query or one key has a dimension where an operand has to name it.
    bool isUnit = axis >= AttentionOp::I && units[axis].empty() &&
                  llvm::any_of(maps, [&, axis = axis](AffineMap map) { return AttentionOp::names(map, axis); });
    if (isUnit)
      parts.push_back({static_cast<unsigned>(axis), static_cast<unsigned>(axis), {}});
    for (unsigned atom : atoms) {
      unsigned dim = llvm::find_if(units, [&](const Unit &unit) { return llvm::is_contained(unit, atom); }) - units;
      if (dim > AttentionOp::J)
        return {};
      if (parts.empty() || parts.back().axis != axis || parts.back().dim != dim)
        parts.push_back({static_cast<unsigned>(axis), dim, {}});
      parts.back().atoms.push_back(atom);
      found[dim].push_back(atom);
    }
  }
  bool isPlain = true;
  SmallVector<unsigned> open(4);
  for (unsigned dim = 0; dim != found.size(); ++dim)
    if (found[dim] != units[dim])
      return {};
  SmallVector<Attribute> attrs;
  for (const Part &part : parts) {
    Extent extent(1);
    for (unsigned atom : part.atoms)
      extent = extent * this->extent(atom);
    std::optional<int64_t> size = extent.constant();
    isPlain &= part.axis == part.dim && part.atoms == units[part.dim];
    if (!size && ++open[part.dim] > 1)
      return {};
    attrs.push_back(AxisPartAttr::get(b.getContext(), static_cast<WeightsAxis>(part.axis), part.dim,
                                      size.value_or(ShapedType::kDynamic)));
  }
  return isPlain ? ArrayAttr() : b.getArrayAttr(attrs);
}

} // namespace attn
