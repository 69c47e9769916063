#include "passes/graph/attention/AttentionBuilder.h"

#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace attn {
namespace {

using AtomSet = llvm::SmallSet<unsigned, 8>;
using Operand = AttentionMatch::Operand;

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
  size_t firstCapture = operands.size();
  for (Operand &capture : match.captures)
    operands.push_back({&capture, &captured});
  if (match.sink.value)
    operands.push_back({&match.sink, &captured});
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
    else if (!k.count(atom) && !v.count(atom) &&
             (q.count(atom) || ((isAdditive || match.repeatsQuery) && captured.count(atom))))
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
    // One that follows a batch dimension everywhere is a head of a group; else the one whose place in the row no mask
    // asks for, and whose size is known.
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
    auto isNumbered = [&](const Unit &row) {
      return llvm::any_of(match.indices, [&](const auto &index) { return llvm::is_contained(index.second, row[0]); });
    };
    auto *head = llvm::find_if(rows, isMember);
    if (head == rows.end())
      head = llvm::find_if(rows, [&](const Unit &row) { return isKnown(row) && !isNumbered(row); });
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
  // Parts of the heads before batch and heads.
  while (batch.size() > 2 &&
         (mergeUnits(batch, /*divided=*/false, /*ofKnownSize=*/true) || mergeUnits(batch, /*divided=*/false))) {
  }
  while (batch.size() > 2 && widenCaptures(batch, firstCapture))
    while (mergeUnits(batch, /*divided=*/false)) {
    }
  // A bias for each row of an image and one for each column, which the keys number together. Where a sum of them is
  // made before, whole captures have that instead.
  while (keyUnits.size() > 1 && mergeUnits(keyUnits, /*divided=*/false)) {
  }
  while (match.wholeCaptures && keyUnits.size() > 1 && widenCaptures(keyUnits, firstCapture))
    while (mergeUnits(keyUnits, /*divided=*/false)) {
    }
  if (batch.size() > 2)
    return fail("more than two batch dimensions that are not side by side", loc);
  if (failed(unify(rows, AttentionOp::I, "query")) || failed(unify(keyUnits, AttentionOp::J, "key")) ||
      failed(unify(widthUnits, AttentionOp::D, "key width")) ||
      failed(unify(valueUnits, AttentionOp::E, "value width")))
    return failure();

  // What the alignment differs along is h.
  auto isAligned = [&](ArrayRef<unsigned> atoms) {
    return match.alignment.value && llvm::any_of(flatten(match.alignment.access),
                                                 [&](unsigned atom) { return llvm::is_contained(atoms, atom); });
  };
  if (isAligned(units[AttentionOp::I]))
    return fail("the vector over the width differs from query to query", match.alignment.value.getLoc());
  // A unit that some operand names in part is read at h floordiv c, so it is h.
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
