#include "passes/graph/attention/AttentionBuilder.h"

#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace attn {
namespace {

using AtomSet = llvm::SmallSet<unsigned, 8>;

AtomSet setOf(ArrayRef<unsigned> atoms) { return AtomSet(atoms.begin(), atoms.end()); }

} // namespace

Atoms flatten(const Access &access) {
  Atoms flat;
  for (const Atoms &atoms : access)
    llvm::append_range(flat, atoms);
  return flat;
}

/// Joins two units that are neighbours in every operand. With `divided`, the
/// second one is absent somewhere (a grouped-query head: read at h floordiv c);
/// with `ofKnownSize`, both sizes are constants.
bool AttentionBuilder::mergeUnits(SmallVector<Unit> &classUnits, bool divided, bool ofKnownSize) {
  auto isKnown = [&](unsigned atom) { return extent(atom).constant().has_value(); };
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
        everywhere &= alone && llvm::all_of(minor, isKnown);
      if (ofKnownSize)
        everywhere &= llvm::all_of(major, isKnown) && llvm::all_of(minor, isKnown);
      if (!everywhere)
        continue;
      llvm::append_range(classUnits[x], Unit(classUnits[y]));
      classUnits.erase(classUnits.begin() + y);
      return true;
    }
  return false;
}

void AttentionBuilder::mergeAll(SmallVector<Unit> &classUnits, bool divided) {
  while (mergeUnits(classUnits, divided)) {
  }
}

/// Makes two units of one class neighbours in every operand, where only captures
/// have one of them alone: the mask of a window, [window, i, j], beside operands
/// that are [image * window, ...]. Such a capture gets the other one, too.
bool AttentionBuilder::widenCaptures(ArrayRef<Unit> classUnits, size_t firstCapture) {
  for (const Unit &major : classUnits)
    for (const Unit &minor : classUnits) {
      bool fits = &major != &minor;
      SmallVector<Widening> needed;
      for (auto [n, sequence] : llvm::enumerate(sequences)) {
        const auto *last = llvm::find(sequence, major.back()), *next = llvm::find(sequence, minor.front());
        bool hasMajor = last != sequence.end(), hasMinor = next != sequence.end();
        if (hasMajor && hasMinor)
          fits &= next == last + 1;
        if (!fits || hasMajor == hasMinor)
          continue;
        fits = n >= firstCapture && n - firstCapture < match.captures.size();
        if (!fits)
          continue;
        const Access &access = match.captures[n - firstCapture].access;
        const auto *at = llvm::find_if(access, [&](const Atoms &atoms) {
          return !atoms.empty() && (hasMinor ? atoms.front() == minor.front() : atoms.back() == major.back());
        });
        fits = at != access.end();
        needed.push_back({static_cast<unsigned>(n - firstCapture),
                          static_cast<unsigned>(at - access.begin()) + hasMajor, hasMinor ? major : minor});
      }
      if (!fits || needed.empty())
        continue;
      for (const Widening &widening : needed) {
        Access &access = match.captures[widening.capture].access;
        access.insert(access.begin() + widening.dim, widening.atoms);
        sequences[firstCapture + widening.capture] = flatten(access);
      }
      llvm::append_range(widenings, needed);
      return true;
    }
  return false;
}

LogicalResult AttentionBuilder::unify(SmallVector<Unit> &classUnits, AttentionOp::Dim dim, StringRef what) {
  mergeAll(classUnits);
  if (classUnits.size() > 1)
    return fail("several " + what + " dimensions that are not side by side", loc);
  if (!classUnits.empty())
    units[dim] = classUnits.front();
  return success();
}

/// The atoms of the operands, and what they number.
struct AttentionBuilder::Classes {
  AtomSet query, key, value, result, captured;
  Atoms order;             ///< of the query, then of the others
  size_t firstCapture = 0; ///< in `sequences`
  SmallVector<Unit> batch, rows, keys, widths, values;
};

/// Lists the atoms of every operand and index, by what names them.
LogicalResult AttentionBuilder::readOperands(Classes &of) {
  SmallVector<std::pair<Operand *, AtomSet *>> operands;
  for (Operand &term : match.queryTerms)
    operands.push_back({&term, &of.query});
  if (match.queryTerms.empty())
    operands.push_back({&match.query, &of.query});
  operands.push_back({&match.result, &of.result});
  for (Operand &term : match.keyTerms)
    operands.push_back({&term, &of.key});
  if (match.key.value)
    operands.push_back({&match.key, &of.key});
  operands.push_back({&match.value, &of.value});
  if (match.alignment.value)
    operands.push_back({&match.alignment, nullptr});
  of.firstCapture = operands.size();
  for (Operand &capture : match.captures)
    operands.push_back({&capture, &of.captured});
  if (match.sink.value)
    operands.push_back({&match.sink, &of.captured});
  for (auto [operand, set] : operands) {
    match.space.resolve(operand->access);
    const Atoms &atoms = sequences.emplace_back(flatten(operand->access));
    if (setOf(atoms).size() != atoms.size())
      return fail("an operand is read along its diagonal", operand->value.getLoc());
    if (set)
      set->insert(atoms.begin(), atoms.end());
    if (set != &of.captured)
      llvm::append_range(of.order, atoms);
  }
  // An index in a region is an operand of its own to what may be joined.
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    sequences.push_back(atoms);
  }
  match.space.resolve(match.keys);
  match.space.resolve(match.widths);
  return success();
}

/// Says of each atom whether it numbers batches, queries, keys or one of the widths.
LogicalResult AttentionBuilder::sortAtoms(Classes &of) {
  ScoreFormula formula = getScoreFormula(match.kind);
  bool mayLackRows = match.repeatsQuery || (formula.hasKey && !formula.queryNamesRows);
  AtomSet keys = setOf(match.keys), widths = setOf(match.widths), seen;
  for (unsigned atom : match.keys)
    of.keys.push_back({atom});
  for (unsigned atom : match.widths)
    of.widths.push_back({atom});
  for (unsigned atom : of.order) {
    if (!seen.insert(atom).second || keys.count(atom) || widths.count(atom))
      continue;
    bool inQuery = of.query.count(atom), inKey = of.key.count(atom), inValue = of.value.count(atom),
         isCaptured = of.captured.count(atom);
    if (!of.result.count(atom))
      return fail("a dimension of the scores is summed beside the keys", loc);
    if (!inQuery && !inKey && inValue && !isCaptured)
      of.values.push_back({atom});
    else if (!inKey && !inValue && (inQuery || (mayLackRows && isCaptured)))
      of.rows.push_back({atom});
    else if (inQuery || inKey || inValue || isCaptured)
      of.batch.push_back({atom});
    else
      return fail("the weights are repeated along a dimension that no operand has", loc);
  }
  const AtomSet &scored = formula.hasKey ? of.key : of.query;
  for (unsigned atom : match.keys)
    if ((formula.hasKey && of.query.count(atom)) || of.result.count(atom) || !scored.count(atom) ||
        !of.value.count(atom))
      return fail("the key position is not one of key and value alone", loc);
  for (unsigned atom : match.widths)
    if (of.value.count(atom) || of.result.count(atom) || of.captured.count(atom))
      return fail("the width of the score's contraction is used outside of it", loc);
  return success();
}

/// Queries in several dimensions: what cannot be joined is a batch dimension that only the query has.
void AttentionBuilder::joinRows(Classes &of) {
  mergeAll(of.rows);
  while (of.rows.size() > 1) {
    // One that follows a batch dimension everywhere is a head of a group; else the one whose place in the row no mask
    // asks for, and whose size is known.
    auto isMember = [&](const Unit &row) {
      SmallVector<Unit> trial(of.batch);
      trial.push_back(row);
      mergeAll(trial, /*divided=*/true);
      return llvm::none_of(trial, [&](const Unit &unit) { return unit == row; });
    };
    auto isKnown = [&](const Unit &row) {
      return llvm::all_of(row, [&](unsigned atom) { return extent(atom).constant().has_value(); });
    };
    auto isNumbered = [&](const Unit &row) {
      return llvm::any_of(match.indices, [&](const auto &index) { return llvm::is_contained(index.second, row[0]); });
    };
    auto *head = llvm::find_if(of.rows, isMember);
    if (head == of.rows.end())
      head = llvm::find_if(of.rows, [&](const Unit &row) { return isKnown(row) && !isNumbered(row); });
    if (head == of.rows.end())
      head = llvm::find_if(of.rows, isKnown);
    if (head == of.rows.end())
      head = of.rows.begin();
    of.batch.push_back(*head);
    of.rows.erase(head);
  }
}

/// Makes two units of one class neighbours where scores that are given are all that keeps them apart: [batch, query,
/// head, key] beside values of [batch * head, ...]. The scores are transposed then.
bool AttentionBuilder::transposeScores(ArrayRef<Unit> classUnits) {
  if (!match.transposesScores || scoreOrder)
    return false;
  Access &scores = match.query.access;
  for (const Unit &major : classUnits)
    for (const Unit &minor : classUnits) {
      auto *from = llvm::find(scores, minor);
      bool fits = &major != &minor && from != scores.end() && llvm::is_contained(scores, major);
      for (ArrayRef<unsigned> sequence : ArrayRef(sequences).drop_front()) {
        const auto *last = llvm::find(sequence, major.back()), *next = llvm::find(sequence, minor.front());
        fits &= last == sequence.end() ? next == sequence.end() : next == last + 1 && next != sequence.end();
      }
      if (!fits)
        continue;
      SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(scores.size()));
      order.erase(order.begin() + (from - scores.begin()));
      Access rest(scores);
      rest.erase(rest.begin() + (from - scores.begin()));
      auto behind = llvm::find(rest, major) - rest.begin() + 1;
      order.insert(order.begin() + behind, from - scores.begin());
      rest.insert(rest.begin() + behind, minor);
      scores = rest;
      sequences.front() = flatten(scores);
      scoreOrder = order;
      return true;
    }
  return false;
}

/// Joins what may be one dimension, of batch and of keys.
void AttentionBuilder::joinBatch(Classes &of) {
  SmallVector<Unit> &batch = of.batch, &keys = of.keys;
  // Head groups first: h floordiv c says more than a batch of heads.
  while (batch.size() > 2 && mergeUnits(batch, /*divided=*/true)) {
  }
  // Parts of the heads before batch and heads.
  while (batch.size() > 2 &&
         (mergeUnits(batch, /*divided=*/false, /*ofKnownSize=*/true) || mergeUnits(batch, /*divided=*/false))) {
  }
  while (batch.size() > 2 && widenCaptures(batch, of.firstCapture))
    mergeAll(batch);
  while (batch.size() > 2 && transposeScores(batch))
    mergeAll(batch);
  // A bias for each row of an image and one for each column, which the keys number together. Where a sum of them is
  // made before, whole captures have that instead.
  mergeAll(keys);
  while (match.wholeCaptures && keys.size() > 1 && widenCaptures(keys, of.firstCapture))
    mergeAll(keys);
}

/// Makes the units of `batch`, two at most, b and h: what the alignment differs along is h, and so is a unit that some
/// operand names in part, which is read at h floordiv c.
LogicalResult AttentionBuilder::nameBatch(ArrayRef<Unit> batch) {
  auto isAligned = [&](ArrayRef<unsigned> atoms) {
    return match.alignment.value && llvm::any_of(flatten(match.alignment.access),
                                                 [&](unsigned atom) { return llvm::is_contained(atoms, atom); });
  };
  if (isAligned(units[AttentionOp::I]))
    return fail("the vector over the width differs from query to query", match.alignment.value.getLoc());
  auto isHead = [&](const Unit &unit) {
    return isAligned(unit) || llvm::any_of(sequences, [&](const Atoms &sequence) {
             return llvm::is_contained(sequence, unit.front()) && !llvm::is_contained(sequence, unit.back());
           });
  };
  if (batch.size() == 1) {
    units[isHead(batch[0]) ? AttentionOp::H : AttentionOp::B] = batch[0];
  } else if (batch.size() == 2) {
    // The outer one is b. Where the query is [s, h] and b is 1, so is either.
    bool swapped = isHead(batch[0]);
    if (swapped && isHead(batch[1]))
      return fail("two dimensions of grouped heads", loc);
    units[AttentionOp::B] = batch[swapped ? 1 : 0];
    units[AttentionOp::H] = batch[swapped ? 0 : 1];
  }
  return success();
}

LogicalResult AttentionBuilder::classify() {
  Classes of;
  if (failed(readOperands(of)) || failed(sortAtoms(of)))
    return failure();
  joinRows(of);
  joinBatch(of);
  if (of.batch.size() > 2 || (match.transposesScores && !scoreOrder))
    return fail("more than two batch dimensions that are not side by side", loc);
  if (failed(unify(of.rows, AttentionOp::I, "query")) || failed(unify(of.keys, AttentionOp::J, "key")) ||
      failed(unify(of.widths, AttentionOp::D, "key width")) || failed(unify(of.values, AttentionOp::E, "value width")))
    return failure();
  return nameBatch(of.batch);
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

} // namespace attn
