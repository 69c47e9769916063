#include "passes/graph/AttentionMatch.h"

#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace attn {
namespace {

using AtomSet = llvm::SmallSet<unsigned, 8>;
using Operand = AttentionMatch::Operand;

/// Several atoms that are one dimension of the attention: they stand side by
/// side, in this order, wherever the last of them stands.
using Unit = Atoms;

Atoms flatten(const Access &access) {
  Atoms flat;
  for (const Atoms &atoms : access)
    llvm::append_range(flat, atoms);
  return flat;
}

AtomSet setOf(ArrayRef<unsigned> atoms) { return AtomSet(atoms.begin(), atoms.end()); }

Value expandTo(OpBuilder &b, Location loc, Value value, ArrayRef<ReassociationIndices> groups,
               ArrayRef<OpFoldResult> sizes) {
  SmallVector<int64_t> shape;
  for (OpFoldResult size : sizes)
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  auto type = RankedTensorType::get(shape, getElementTypeOrSelf(value));
  // A group of one dimension keeps what its type knows.
  SmallVector<int64_t> known(shape);
  for (auto [n, group] : llvm::enumerate(groups))
    if (group.size() == 1)
      known[group.front()] = cast<RankedTensorType>(value.getType()).getDimSize(n);
  SmallVector<OpFoldResult> exact(sizes);
  for (auto [n, size] : llvm::enumerate(known))
    if (!ShapedType::isDynamic(size))
      exact[n] = b.getIndexAttr(size);
  type = RankedTensorType::get(known, getElementTypeOrSelf(value));
  // A dimension that is static in the group must be static in the source.
  SmallVector<int64_t> source;
  for (ArrayRef<int64_t> group : groups) {
    int64_t product = 1;
    for (int64_t n : group)
      product =
          ShapedType::isDynamic(product) || ShapedType::isDynamic(known[n]) ? ShapedType::kDynamic : product * known[n];
    source.push_back(product);
  }
  auto sourceType = RankedTensorType::get(source, getElementTypeOrSelf(value));
  if (value.getType() != sourceType)
    value = tensor::CastOp::create(b, loc, sourceType, value);
  return tensor::ExpandShapeOp::create(b, loc, type, value, groups, exact);
}

/// Assigns atoms to the dimensions b, h, i, j, d, e, and builds the op.
class AttentionBuilder {
public:
  AttentionBuilder(RewriterBase &b, AttentionMatch &match, Miss &miss)
      : b(b), match(match), miss(miss), loc(match.result.value.getLoc()) {}

  FailureOr<AttentionOp> build();

private:
  LogicalResult fail(const Twine &reason, Location location) {
    miss = {reason.str(), location};
    return failure();
  }
  LogicalResult classify();
  LogicalResult sumTerms(ArrayRef<Operand> terms, Operand &sum, StringRef what);
  LogicalResult assignIndices();
  bool mergeUnits(SmallVector<Unit> &units, bool divided);
  LogicalResult unify(SmallVector<Unit> &units, AttentionOp::Dim dim, StringRef what);
  std::optional<std::pair<unsigned, Atoms>> segment(ArrayRef<unsigned> atoms, size_t at) const;
  LogicalResult arrange(Operand &operand, ArrayRef<unsigned> mustName, AffineMap &map, StringRef what);
  Value toTarget(Value value, ArrayRef<unsigned> dims);

  const Extent &extent(unsigned atom) const { return match.space.getExtent(atom); }
  OpFoldResult size(ArrayRef<unsigned> atoms) {
    Extent product(1);
    for (unsigned atom : atoms)
      product = product * extent(atom);
    return product.materialize(b, loc);
  }

  RewriterBase &b;
  AttentionMatch &match;
  Miss &miss;
  Location loc;
  SmallVector<Atoms> sequences; ///< atoms of every operand in memory order, then of every index
  Unit units[6];
};

/// Joins two units that are neighbours in every operand. With `divided`, the
/// second one is absent somewhere (a grouped-query head: read at h floordiv c).
bool AttentionBuilder::mergeUnits(SmallVector<Unit> &classUnits, bool divided) {
  for (size_t x = 0; x != classUnits.size(); ++x)
    for (size_t y = 0; y != classUnits.size(); ++y) {
      if (x == y)
        continue;
      const Unit &major = classUnits[x], &minor = classUnits[y];
      bool everywhere = true, alone = false;
      for (ArrayRef<unsigned> sequence : sequences) {
        const auto *last = llvm::find(sequence, major.back()), *next = llvm::find(sequence, minor.front());
        bool hasMajor = last != sequence.end(), hasMinor = next != sequence.end();
        alone |= hasMajor && !hasMinor;
        if (hasMajor && hasMinor)
          everywhere &= next == last + 1;
        else
          everywhere &= !hasMinor && (!hasMajor || divided);
      }
      if (divided)
        everywhere &= alone && llvm::all_of(minor, [&](unsigned atom) { return extent(atom).constant().has_value(); });
      if (!everywhere)
        continue;
      llvm::append_range(classUnits[x], Unit(classUnits[y]));
      classUnits.erase(classUnits.begin() + y);
      return true;
    }
  return false;
}

LogicalResult AttentionBuilder::unify(SmallVector<Unit> &classUnits, AttentionOp::Dim dim, StringRef what) {
  while (classUnits.size() > 1 && mergeUnits(classUnits, /*divided=*/false)) {
  }
  if (classUnits.size() > 1)
    return fail("several " + what + " dimensions that are not side by side", loc);
  if (!classUnits.empty())
    units[dim] = classUnits.front();
  return success();
}

LogicalResult AttentionBuilder::classify() {
  bool isAdditive = match.kind == ScoreKind::additive;
  AtomSet q, k, v, out, captured, keys, widths;
  Atoms order; // of the query, then of the others
  auto add = [&](Operand &operand, AtomSet *set) -> LogicalResult {
    match.space.resolve(operand.access);
    sequences.push_back(flatten(operand.access));
    if (setOf(sequences.back()).size() != sequences.back().size())
      return fail("an operand is read along its diagonal", operand.value.getLoc());
    if (set)
      set->insert(sequences.back().begin(), sequences.back().end());
    if (set != &captured)
      llvm::append_range(order, sequences.back());
    return success();
  };
  SmallVector<std::pair<Operand *, AtomSet *>> operands;
  for (Operand &term : match.queryTerms)
    operands.push_back({&term, &q});
  if (!isAdditive)
    operands.push_back({&match.query, &q});
  operands.push_back({&match.result, &out});
  for (Operand &term : match.keyTerms)
    operands.push_back({&term, &k});
  if (match.kind == ScoreKind::dot)
    operands.push_back({&match.key, &k});
  operands.push_back({&match.value, &v});
  if (match.alignment.value)
    operands.push_back({&match.alignment, nullptr});
  for (Operand &capture : match.captures)
    operands.push_back({&capture, &captured});
  for (auto [operand, set] : operands)
    if (failed(add(*operand, set)))
      return failure();
  // An index in a region is an operand of its own to what may be joined.
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    sequences.push_back(atoms);
  }
  match.space.resolve(match.keys);
  match.space.resolve(match.widths);
  keys = setOf(match.keys);
  widths = setOf(match.widths);

  SmallVector<Unit> batch, rows, keyUnits, widthUnits, valueUnits;
  for (unsigned atom : match.keys)
    keyUnits.push_back({atom});
  for (unsigned atom : match.widths)
    widthUnits.push_back({atom});
  AtomSet seen;
  for (unsigned atom : order) {
    if (!seen.insert(atom).second || keys.count(atom) || widths.count(atom))
      continue;
    if (!out.count(atom))
      return fail("a dimension of the scores is summed beside the keys", loc);
    if (!q.count(atom) && !k.count(atom) && v.count(atom) && !captured.count(atom))
      valueUnits.push_back({atom});
    else if (!k.count(atom) && !v.count(atom) && (q.count(atom) || (isAdditive && captured.count(atom))))
      rows.push_back({atom});
    else if (q.count(atom) || k.count(atom) || v.count(atom) || captured.count(atom))
      batch.push_back({atom});
    else
      return fail("the weights are repeated along a dimension that no operand has", loc);
  }
  const AtomSet &scored = match.kind == ScoreKind::given ? q : k;
  for (unsigned atom : match.keys)
    if ((match.kind != ScoreKind::given && q.count(atom)) || out.count(atom) || !scored.count(atom) || !v.count(atom))
      return fail("the key position is not one of key and value alone", loc);
  for (unsigned atom : match.widths)
    if (v.count(atom) || out.count(atom) || captured.count(atom))
      return fail("the width of the score's contraction is used outside of it", loc);

  // Queries in several dimensions: what cannot be joined is a batch dimension
  // that only the query has.
  while (rows.size() > 1 && mergeUnits(rows, /*divided=*/false)) {
  }
  while (rows.size() > 1) {
    // One that follows a batch dimension everywhere is a head of a group; else the one whose size is known.
    auto isMember = [&](const Unit &row) {
      SmallVector<Unit> trial(batch);
      trial.push_back(row);
      while (mergeUnits(trial, /*divided=*/true)) {
      }
      return llvm::none_of(trial, [&](const Unit &unit) { return unit == row; });
    };
    auto isKnown = [&](const Unit &row) {
      return llvm::all_of(row, [&](unsigned atom) { return extent(atom).constant().has_value(); });
    };
    auto *head = llvm::find_if(rows, isMember);
    if (head == rows.end())
      head = llvm::find_if(rows, isKnown);
    if (head == rows.end())
      head = rows.begin();
    batch.push_back(*head);
    rows.erase(head);
  }
  // Head groups first: h floordiv c says more than a batch of heads.
  while (batch.size() > 2 && mergeUnits(batch, /*divided=*/true)) {
  }
  while (batch.size() > 2 && mergeUnits(batch, /*divided=*/false)) {
  }
  if (batch.size() > 2)
    return fail("more than two batch dimensions that are not side by side", loc);
  if (failed(unify(rows, AttentionOp::I, "query")) || failed(unify(keyUnits, AttentionOp::J, "key")) ||
      failed(unify(widthUnits, AttentionOp::D, "key width")) ||
      failed(unify(valueUnits, AttentionOp::E, "value width")))
    return failure();

  // A unit that some operand names in part is read at h floordiv c, so it is h.
  auto isDivided = [&](const Unit &unit) {
    return llvm::any_of(sequences, [&](const Atoms &sequence) {
      return llvm::is_contained(sequence, unit.front()) && !llvm::is_contained(sequence, unit.back());
    });
  };
  if (batch.size() == 1) {
    units[isDivided(batch[0]) ? AttentionOp::H : AttentionOp::B] = batch[0];
  } else if (batch.size() == 2) {
    // The outer one is b. Where the query is [s, h] and b is 1, so is either.
    bool swapped = isDivided(batch[0]);
    if (swapped && isDivided(batch[1]))
      return fail("two dimensions of grouped heads", loc);
    units[AttentionOp::B] = batch[swapped ? 1 : 0];
    units[AttentionOp::H] = batch[swapped ? 0 : 1];
  }
  return success();
}

/// The run of atoms from `at` that belongs to one dimension.
std::optional<std::pair<unsigned, Atoms>> AttentionBuilder::segment(ArrayRef<unsigned> atoms, size_t at) const {
  for (unsigned dim = 0; dim != 6; ++dim) {
    const auto *start = llvm::find(units[dim], atoms[at]);
    if (start == units[dim].end())
      continue;
    Atoms run;
    for (const auto *it = start; it != units[dim].end() && at < atoms.size() && atoms[at] == *it; ++it, ++at)
      run.push_back(*it);
    return std::pair(dim, run);
  }
  return std::nullopt;
}

/// Makes `operand` a tensor with one dimension of the attention a dimension,
/// by reshapes that move nothing, and its map. Dimensions in `mustName` that
/// it lacks have size 1 and take a unit dimension.
LogicalResult AttentionBuilder::arrange(Operand &operand, ArrayRef<unsigned> mustName, AffineMap &map, StringRef what) {
  if (!isa<RankedTensorType>(operand.value.getType())) {
    Value scalar = operand.value;
    if (scalar.getType().isIndex())
      scalar = arith::IndexCastOp::create(b, loc, b.getI64Type(), scalar);
    operand.value =
        tensor::FromElementsOp::create(b, loc, RankedTensorType::get({}, scalar.getType()), ValueRange(scalar));
  }
  // One dimension a run of atoms.
  struct Piece {
    std::optional<unsigned> dim;
    Atoms atoms;
  };
  SmallVector<Piece> pieces;
  SmallVector<ReassociationIndices> groups;
  SmallVector<OpFoldResult> sizes;
  bool expands = false;
  for (auto [n, atoms] : llvm::enumerate(operand.access)) {
    groups.emplace_back();
    size_t at = 0;
    do {
      groups.back().push_back(pieces.size());
      if (atoms.empty()) {
        pieces.push_back({std::nullopt, {}});
        sizes.push_back(b.getIndexAttr(1));
        break;
      }
      auto run = segment(atoms, at);
      if (!run)
        return fail("the " + what + " has a dimension of its own", operand.value.getLoc());
      at += run->second.size();
      pieces.push_back({run->first, run->second});
      sizes.push_back(size(run->second));
    } while (at < atoms.size());
    expands |= groups.back().size() > 1;
  }
  // The unit dimension that stands for a dimension of size 1: the last one
  // that the operand has, or a new one at its end.
  for (unsigned dim : mustName) {
    if (!units[dim].empty())
      continue;
    bool named = false;
    for (size_t n = pieces.size(); n != 0 && !named; --n)
      if (!pieces[n - 1].dim && cast<RankedTensorType>(operand.value.getType()).getRank() == int64_t(pieces.size()) &&
          cast<RankedTensorType>(operand.value.getType()).getDimSize(n - 1) == 1) {
        pieces[n - 1].dim = dim;
        named = true;
      }
    if (named)
      continue;
    if (!groups.empty())
      groups.back().push_back(pieces.size());
    pieces.push_back({dim, {}});
    sizes.push_back(b.getIndexAttr(1));
    expands = true;
  }
  if (expands)
    operand.value = expandTo(b, loc, operand.value, groups, sizes);

  // Neighbours of one dimension become one.
  SmallVector<ReassociationIndices> joined;
  SmallVector<Piece> whole;
  for (auto [n, piece] : llvm::enumerate(pieces)) {
    if (!whole.empty() && piece.dim && whole.back().dim == piece.dim) {
      joined.back().push_back(n);
      llvm::append_range(whole.back().atoms, piece.atoms);
      continue;
    }
    joined.push_back({static_cast<int64_t>(n)});
    whole.push_back(piece);
  }
  if (joined.size() != pieces.size())
    operand.value = tensor::CollapseShapeOp::create(b, loc, operand.value, joined);

  SmallVector<AffineExpr> exprs;
  for (const Piece &piece : whole) {
    if (!piece.dim) {
      exprs.push_back(b.getAffineConstantExpr(0));
      continue;
    }
    AffineExpr expr = b.getAffineDimExpr(*piece.dim);
    const Unit &unit = units[*piece.dim];
    if (piece.atoms != unit) {
      // h = (group, member): read at the group.
      if (*piece.dim != AttentionOp::H || piece.atoms.size() >= unit.size() ||
          ArrayRef(unit).take_front(piece.atoms.size()) != ArrayRef(piece.atoms))
        return fail("the " + what + " has part of a dimension", operand.value.getLoc());
      int64_t divisor = 1;
      for (unsigned atom : ArrayRef(unit).drop_front(piece.atoms.size()))
        divisor *= *extent(atom).constant();
      expr = expr.floorDiv(divisor);
    }
    exprs.push_back(expr);
  }
  map = AffineMap::get(6, 0, exprs, b.getContext());
  return success();
}

LogicalResult AttentionBuilder::assignIndices() {
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    if (atoms.empty()) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(index);
      index.getResult().replaceAllUsesWith(arith::ConstantIndexOp::create(b, index.getLoc(), 0));
      index.erase();
      continue;
    }
    auto run = segment(atoms, 0);
    if (!run || run->second != atoms || units[run->first] != atoms || run->first > AttentionOp::J)
      return fail("the region uses the index of part of a dimension", loc);
    index.setDim(run->first);
  }
  return success();
}

/// `value` with dimensions `dims` of the attention as the tensor that the match
/// replaces.
Value AttentionBuilder::toTarget(Value value, ArrayRef<unsigned> dims) {
  auto target = cast<RankedTensorType>(match.result.value.getType());
  // Expand each dimension into the runs that the target's dimensions take.
  SmallVector<ReassociationIndices> expand(dims.size()), collapse, unit;
  SmallVector<OpFoldResult> runSizes, targetSizes;
  SmallVector<unsigned> runOf; // target dimension of each run, or -1 of a dimension of size 1
  for (auto [n, dim] : llvm::enumerate(dims)) {
    ArrayRef<unsigned> atoms = units[dim];
    if (atoms.empty()) {
      expand[n].push_back(runSizes.size());
      runSizes.push_back(b.getIndexAttr(1));
      runOf.push_back(-1);
    }
    for (size_t at = 0; at < atoms.size();) {
      auto owner = [&](unsigned atom) {
        return llvm::find_if(match.result.access, [&](const Atoms &list) { return llvm::is_contained(list, atom); }) -
               match.result.access.begin();
      };
      unsigned place = owner(atoms[at]);
      Atoms run;
      for (; at < atoms.size() && static_cast<unsigned>(owner(atoms[at])) == place; ++at)
        run.push_back(atoms[at]);
      expand[n].push_back(runSizes.size());
      runSizes.push_back(size(run));
      runOf.push_back(place);
    }
  }
  if (runSizes.size() != dims.size())
    value = expandTo(b, loc, value, expand, runSizes);
  // Join the runs of one target dimension; a dimension of size 1 joins what
  // stands before it (or after, at the front).
  unsigned last = -1;
  for (auto [n, place] : llvm::enumerate(runOf)) {
    bool joins = !collapse.empty() && (place == unsigned(-1) || last == unsigned(-1) || place == last);
    if (joins)
      collapse.back().push_back(n);
    else
      collapse.push_back({static_cast<int64_t>(n)});
    if (place != unsigned(-1))
      last = place;
  }
  if (last == unsigned(-1))
    collapse.clear();
  if (collapse.size() != runOf.size())
    value = tensor::CollapseShapeOp::create(b, loc, value, collapse);
  // Put back the target's unit dimensions.
  int64_t group = -1;
  unit.resize(collapse.size());
  for (auto [n, atoms] : llvm::enumerate(match.result.access)) {
    group += !atoms.empty();
    targetSizes.push_back(atoms.empty() ? OpFoldResult(b.getIndexAttr(1)) : size(atoms));
    if (!unit.empty())
      unit[std::max<int64_t>(group, 0)].push_back(n);
  }
  if (targetSizes.size() != collapse.size())
    value = expandTo(b, loc, value, unit, targetSizes);
  if (value.getType() != target)
    value = tensor::CastOp::create(b, loc, target, value);
  return value;
}

/// Makes `sum` the sum of `terms`: a tensor with a dimension for each one of
/// the attention that a term names.
LogicalResult AttentionBuilder::sumTerms(ArrayRef<Operand> terms, Operand &sum, StringRef what) {
  if (terms.size() == 1) {
    sum = terms.front();
    return success();
  }
  SmallVector<OpFoldResult> sizes, shape;
  for (const Unit &unit : units)
    sizes.push_back(size(unit));
  SmallVector<MappedTensor> plain;
  SmallVector<unsigned> dims;
  for (Operand term : terms) {
    AffineMap map;
    if (failed(arrange(term, {}, map, what)))
      return failure();
    plain.push_back(readPlainly(b, loc, term.value, map, sizes));
    for (AffineExpr expr : plain.back().map.getResults())
      if (unsigned dim = *AttentionOp::getNamedDim(expr); !llvm::is_contained(dims, dim))
        dims.push_back(dim);
  }
  SmallVector<int64_t> loops(AttentionOp::kDims, 0);
  for (auto [n, dim] : llvm::enumerate(dims)) {
    loops[dim] = n;
    shape.push_back(sizes[dim]);
    sum.access.push_back(units[dim]);
  }
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (const MappedTensor &term : plain) {
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : term.map.getResults())
      exprs.push_back(b.getAffineDimExpr(loops[*AttentionOp::getNamedDim(expr)]));
    inputs.push_back(term.value);
    maps.push_back(AffineMap::get(dims.size(), 0, exprs, b.getContext()));
  }
  sum.value = elementwise(b, loc, shape, getElementTypeOrSelf(inputs.front()), inputs, maps,
                          [](OpBuilder &b, Location loc, ValueRange args) {
                            Value total = args.front();
                            for (Value arg : args.drop_front().drop_back()) // the last is the init
                              total = arith::AddFOp::create(b, loc, total, arg);
                            return total;
                          });
  return success();
}

FailureOr<AttentionOp> AttentionBuilder::build() {
  Type element = getElementTypeOrSelf(match.result.value);
  for (const Operand *operand : {&match.query, &match.key, &match.value, &match.alignment})
    if (operand->value && (getElementTypeOrSelf(operand->value) != element || !isa<FloatType>(element)))
      return fail("query, key, value and result differ in element type", operand->value.getLoc());
  if (failed(classify()) || failed(assignIndices()))
    return failure();

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(match.result.value.getDefiningOp());
  using A = AttentionOp;
  bool isAdditive = match.kind == ScoreKind::additive, isGiven = match.kind == ScoreKind::given;
  if (isAdditive &&
      (failed(sumTerms(match.queryTerms, match.query, "query")) || failed(sumTerms(match.keyTerms, match.key, "key"))))
    return failure();
  AttentionParts parts;
  parts.kind = match.kind;
  parts.maskedRows = match.maskedRows;
  auto place = [&](Operand &operand, ArrayRef<unsigned> mustName, StringRef what, Value &into) -> LogicalResult {
    if (failed(arrange(operand, mustName, parts.maps.emplace_back(), what)))
      return failure();
    into = operand.value;
    return success();
  };
  SmallVector<unsigned> queryNames{A::I, A::D};
  if (isAdditive)
    queryNames = {A::D};
  else if (isGiven)
    queryNames = {A::J};
  if (failed(place(match.query, queryNames, isGiven ? "scores" : "query", parts.query)) ||
      (!isGiven && failed(place(match.key, {A::J, A::D}, "key", parts.key))) ||
      failed(place(match.value, {A::J, A::E}, "value", parts.value)))
    return failure();
  if (isAdditive && !match.alignment.value)
    match.alignment = {
        arith::ConstantOp::create(
            b, loc, DenseElementsAttr::get(RankedTensorType::get({1}, element), b.getFloatAttr(element, 1))),
        {Atoms()}};
  if (isAdditive && failed(place(match.alignment, {A::D}, "alignment", parts.alignment)))
    return failure();
  for (Operand &capture : match.captures)
    if (failed(place(capture, {}, "captured tensor", parts.captures.emplace_back())))
      return failure();

  // The result: whole dimensions in the target's order, then e and i where they have size 1.
  Atoms order = flatten(match.result.access);
  SmallVector<unsigned> dims;
  SmallVector<AffineExpr> exprs;
  SmallVector<int64_t> shape;
  for (size_t at = 0; at < order.size();) {
    auto run = segment(order, at);
    if (!run || run->second != units[run->first])
      return fail("the result has part of a dimension", loc);
    at += run->second.size();
    dims.push_back(run->first);
  }
  for (unsigned dim : {A::I, A::E})
    if (units[dim].empty())
      dims.push_back(dim);
  for (unsigned dim : dims) {
    exprs.push_back(b.getAffineDimExpr(dim));
    shape.push_back(getConstantIntValue(size(units[dim])).value_or(ShapedType::kDynamic));
  }
  parts.maps.push_back(AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext()));
  parts.types.push_back(RankedTensorType::get(shape, element));

  auto op = AttentionOp::create(b, loc, parts);
  // Both regions take every capture.
  auto adopt = [&](Region &into, Region &from, ArrayRef<unsigned> used) {
    into.takeBody(from);
    Block &block = into.front();
    SmallVector<BlockArgument> old(block.getArguments().drop_front());
    SmallVector<Value> fresh;
    for (Value capture : parts.captures)
      fresh.push_back(block.addArgument(getElementTypeOrSelf(capture), loc));
    for (auto [argument, number] : llvm::zip_equal(old, used))
      argument.replaceAllUsesWith(fresh[number]);
    block.eraseArguments(1, old.size());
  };
  adopt(op.getScore(), *match.score, match.scoreCaptures);
  adopt(op.getWeight(), *match.weight, match.weightCaptures);
  if (match.activation)
    op.getActivation().takeBody(*match.activation);
  b.replaceAllUsesWith(match.result.value, toTarget(op.getResult(), dims));
  return op;
}

} // namespace

FailureOr<AttentionOp> buildAttention(RewriterBase &rewriter, AttentionMatch &match, Miss &miss) {
  return AttentionBuilder(rewriter, match, miss).build();
}

} // namespace attn
