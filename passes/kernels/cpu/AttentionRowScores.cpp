// The scores of one query.

#include "passes/kernels/cpu/AttentionRowEmitter.h"
#include "passes/kernels/cpu/RegionVectorizer.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// The key width of a query or of the alignment, as f32; 0 in lanes beyond it.
Vecs RowEmitter::loadRow(const OperandView &view, const Index &base) {
  Vecs loaded;
  for (int64_t n = 0; n < chunks(keyWidth); ++n) {
    if (view.isContiguous(Dim::D)) {
      loaded.push_back(loadChunk(view, base, n, keyWidth));
      continue;
    }
    SmallVector<Num> elements;
    for (int64_t d = n * lanes; d < (n + 1) * lanes; ++d)
      elements.push_back(d < keyWidth ? k.toF32(view.flat(view.along(base, Dim::D, d))) : k.f32(0));
    loaded.push_back(vectorOf(elements));
  }
  return loaded;
}

/// Stores the scores of `count` keys and returns their maximum, in every lane.
Vec RowEmitter::maximumOf(const Index &first, const Index &count) {
  auto step = [&](const Index &n, const Vec &before, bool isEdge) {
    Vec scores = scoreTile(first + n, isEdge);
    weights.setVector(scores, n);
    return greaterOf(scores, before);
  };
  Index whole = floorTo(count, lanes);
  Vec top =
      k.loop(0, whole, lanes, k.splat(-k.kInfinity), [&](Index n, Vec top) { return step(n, top, /*isEdge=*/false); });
  std::optional<int64_t> keys = getConstantIntValue(numKeys.value());
  if (!mask.isFull() || !lists.isFull() || !keys || *keys % lanes)
    top = k.choose(whole < count, [&] { return step(whole, top, /*isEdge=*/true); }, [&] { return top; });
  return acrossLanes(top, greaterOf<Vec>);
}

/// The share of one chunk of the key width, of which `rest` lanes exist, in a
/// score; added to `sum`.
Vec RowEmitter::term(const Vec &elements, const Vec &query, const Vec &weight, int64_t rest, const Vec &sum) {
  auto activate = [&](Value sum) -> Value {
    Vec x = k.asVec(sum);
    if (spec.isTanh()) // tanh x = 1 - 2 / (1 + exp(2x))
      return 1.0 - 2.0 / (k.exp2(k.clamp(x, 20) * (2 * kLog2E)) + 1.0);
    if (!spec.activation)
      return x;
    x = k.asVec(vectorizeBlock(k.b, *spec.activation, x.value(), lanes));
    // Beyond the key width the activation may be anything.
    return rest < lanes ? select(firstLanes(k.index(rest), lanes), x, k.splat(0)) : x;
  };
  auto [left, right] = makeScoreFactors(spec.kind, k.b, k.loc, {query, elements, weight}, activate);
  return fma(k.asVec(right), k.asVec(left), sum);
}

/// What the kind makes of a register of keys from `first` on.
Vec RowEmitter::products(const Index &first, bool isEdge) {
  if (!spec.formula().hasKey)
    return k.toLanes(readCapture(query, first, isEdge));
  Indices offsets;
  for (int64_t n = 0; n < lanes; ++n)
    offsets.push_back(key.along(key.base, Dim::J, keyAt(position(first, n, isEdge))));
  return keyWidth == 1 && !spec.isInBytes(spec.keyOperand) ? narrowProducts(offsets) : wideProducts(offsets, isEdge);
}

/// Those of keys of one element each, which stand at `offsets`.
Vec RowEmitter::narrowProducts(const Indices &offsets) {
  auto elements = llvm::map_to_vector(offsets, [&](const Index &offset) { return key.flat(offset); });
  auto everywhere = [&](const Vecs &chunks) { return chunks.empty() ? Vec() : k.splat(extract(chunks.front(), 0)); };
  Vec x = k.toF32(vectorOf(elements)), q = everywhere(queryChunks);
  return term(x, q, everywhere(alignmentChunks), lanes, k.splat(0));
}

/// Those of keys whose rows begin at `offsets`.
Vec RowEmitter::wideProducts(const Indices &offsets, bool isEdge) {
  // Fetched ahead: rows further on lie in other pages, which the machine does not foresee.
  int64_t line = 64 / key.elementBytes(), all = chunks(keyWidth), whole = keyWidth / lanes;
  auto step = [&](const Index &d, const Vec &query, const Vec &weight, int64_t rest, Vecs rows) {
    for (auto [offset, sum] : llvm::zip_equal(offsets, rows))
      sum = term(loadSome(key, offset + d, rest), query, weight, rest, sum);
    return rows;
  };
  Vecs rows(lanes, k.splat(0));
  for (const Index &offset : offsets)
    for (int64_t d = 0; d < keyWidth && !isEdge && !isPicked && all <= kInRegisters; d += line)
      prefetch(key, key.along(offset, Dim::J, kAhead) + d);
  if (all > kInRegisters)
    rows = k.loop(0, whole * lanes, lanes, rows, [&](Index d, Vecs rows) {
      Index at = place.query + d;
      Vec weight = alignmentChunks.empty() ? Vec() : scratch.queries.vector(lanes, at + all * lanes);
      return step(d, scratch.queries.vector(lanes, at), weight, lanes, rows);
    });
  for (int64_t n = all > kInRegisters ? whole : 0; n < all; ++n)
    rows = step(k.index(n * lanes), queryChunks[n], alignmentChunks.empty() ? Vec() : alignmentChunks[n],
                std::min(lanes, keyWidth - n * lanes), rows);
  if (spec.isInBytes(spec.keyOperand))
    for (auto [offset, sum] : llvm::zip_equal(offsets, rows))
      sum = sum * k.word(key.flat, offset + keyWidth);
  return sumLanes(rows);
}

/// What `block` makes of the scores of a register of keys from `first` on.
Vec RowEmitter::applyRegion(Block &block, const Vec &scores, const Index &first, bool isEdge) {
  SmallVector<Value> arguments{scores};
  for (auto [n, capture] : llvm::enumerate(captures)) {
    bool isUsed = !block.getArgument(1 + n).use_empty();
    arguments.push_back(isUsed ? readCapture(capture, first, isEdge).value() : Value());
  }
  auto index = [&](OpBuilder &, Location, int64_t dim) -> Value {
    if (dim == Dim::J)
      return isPicked ? scratch.keys.vector(lanes, first) : k.indicesFrom(first);
    return dim == Dim::B ? batch : dim == Dim::H ? head : row;
  };
  return k.asVec(vectorizeBlock(k.b, block, arguments, lanes, index));
}

/// The keys from `first` on that the query sees; null where it sees all.
Mask RowEmitter::visibleKeys(const Index &first, bool isEdge) {
  Mask isVisible;
  // The bounds say it of keys that stand side by side.
  if (!mask.isInterval())
    isVisible = mask.visibleKeys(row, first, lanes);
  for (const OperandView &term : dense) {
    Mask shows = k.toLanes(k.isNonZero(readCapture(term, first, isEdge)));
    isVisible = joined(isVisible, shows);
  }
  return isVisible;
}

/// Scores of a register of keys from `first` on; -inf beyond the end.
Vec RowEmitter::scoreTile(const Index &first, bool isEdge) {
  Vec scores = products(first, isEdge);
  if (!pureScale)
    scores = applyRegion(*spec.score, scores, first, isEdge);
  if (Mask isVisible = visibleKeys(first, isEdge); isVisible.value())
    scores = select(isVisible, scores, k.splat(-k.kInfinity));
  return isEdge ? select(firstLanes(end - first, lanes), scores, k.splat(-k.kInfinity)) : scores;
}

/// Lane n of the result is the sum of the lanes of rows[n]. Two rows become one
/// by adding neighbours at distance s, s = 1, 2, 4...; bit s of the lane tells
/// which of the two.
Vec RowEmitter::sumLanes(Vecs rows) {
  for (int64_t s = 1; s < lanes; s *= 2) {
    SmallVector<int64_t> own, partner;
    for (int64_t n = 0; n < lanes; ++n) {
      own.push_back(n & s ? lanes + n : n);
      partner.push_back(n & s ? lanes + n - s : n + s);
    }
    Vecs next;
    for (size_t n = 0; n < rows.size(); n += 2)
      next.push_back(attn::shuffle(rows[n], rows[n + 1], own) + attn::shuffle(rows[n], rows[n + 1], partner));
    rows = std::move(next);
  }
  return rows.front();
}

/// The capture for this query and a register of keys: a number where they agree.
Term RowEmitter::readCapture(const OperandView &capture, const Index &first, bool isEdge) {
  Index base = capture.along(capture.base, Dim::I, row);
  if (!capture.has(Dim::J))
    return capture.flat(base);
  if (capture.isContiguous(Dim::J) && !isPicked) {
    Index offset = base + first;
    return isEdge ? capture.flat.first(numKeys - first, lanes, offset) : capture.flat.vector(lanes, offset);
  }
  SmallVector<Num> elements;
  for (int64_t n = 0; n < lanes; ++n)
    elements.push_back(capture.flat(capture.along(base, Dim::J, keyAt(position(first, n, isEdge)))));
  return vectorOf(elements);
}

} // namespace attn
