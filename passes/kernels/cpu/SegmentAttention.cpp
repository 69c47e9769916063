#include "passes/kernels/cpu/SegmentAttention.h"

#include "builders/Lanes.h"
#include "passes/kernels/shared/Exponential.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/Storage.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

constexpr double kLog2E = 1.4426950408889634;
/// Edges whose weights wait in scratch: with 8 heads, 2 KB.
constexpr int64_t kEdgesOfBlock = 64;
/// Registers that sum values at a time.
constexpr int64_t kAccumulators = 8;
/// Registers of a result: each is code.
constexpr int64_t kMostRegisters = 512;
constexpr int64_t kLineFloats = 16, kMostFetched = 64 * kLineFloats;

/// The edges of one node.
class NodeEdges {
public:
  NodeEdges(Code &k, const SegmentAttentionSpec &spec, ArrayRef<Buffer> buffers, Index node)
      : k(k), spec(spec), heads(spec.heads()), width(spec.width()), lanes(spec.headLanes()),
        valueLanes(spec.valueLanes()), registers(llvm::divideCeil(heads, lanes)), scores(buffers[0].flat()),
        values(buffers[1].flat()), order(buffers[2]), result(buffers.back().flat()), first(node * (heads * width)) {
    if (spec.hasRows)
      rows = buffers[4];
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t column = 0; column < width; column += valueLanes)
        pieces.push_back({head, column, std::min(valueLanes, width - column)});
    Buffer ends = buffers[3];
    begin = k.choose(node > 0, [&] { return toIndex(ends(node - 1)); }, [&] { return k.index(0); });
    end = toIndex(ends(node));
    weights = k.scratch({kEdgesOfBlock * registers * lanes}, k.b.getF32Type());
    for (const Piece &piece : pieces)
      store(k.splat(k.f32(0), valueLanes), piece);
  }

  void emit() {
    k.when(begin < end, [&] {
      Vecs tops = findTops();
      Vecs sums = k.loop(begin, end, kEdgesOfBlock, Vecs(registers, splat(0)), [&](Index from, Vecs sums) {
        Index count = minimum(end - from, kEdgesOfBlock);
        Vecs added = weigh(from, count, tops);
        for (size_t n = 0; n < pieces.size(); n += kAccumulators)
          addValues(from, count, ArrayRef(pieces).drop_front(n).take_front(kAccumulators));
        for (auto [sum, more] : llvm::zip_equal(sums, added))
          sum = sum + more;
        return sums;
      });
      markLong(k.b);
      divide(sums);
    });
  }

private:
  /// Of the result's row: `count` elements of `head` from `column` on, in a register.
  struct Piece {
    int64_t head, column, count;
  };

  Vec splat(double value) { return k.splat(k.f32(value), lanes); }
  Vec load(const Buffer &from, const Index &row, const Piece &piece) {
    Index at = row + (piece.head * width + piece.column);
    return from.first(piece.count, valueLanes, at);
  }
  void store(const Vec &x, const Piece &piece) {
    Index at = first + (piece.head * width + piece.column);
    result.setFirst(x, piece.count, at);
  }
  Index edgeAt(const Index &n) { return toIndex(order(n)); }
  Index valuesOf(const Index &edge) { return (rows.value() ? toIndex(rows(edge)) : edge) * (heads * width); }

  /// The scores of all heads.
  Vecs scoresOf(const Index &edge) {
    Vecs loaded;
    for (int64_t n = 0; n < heads; n += lanes)
      loaded.push_back(scores.first(heads - n, lanes, edge * heads + n));
    return loaded;
  }

  Vecs findTops() {
    double lowest = spec.floor.value_or(-std::numeric_limits<float>::infinity());
    Vecs tops = k.loop(begin, end, kEdgesOfBlock, Vecs(registers, splat(lowest)), [&](Index from, Vecs tops) {
      return k.loop(from, minimum(from + kEdgesOfBlock, end), 1, tops, [&](Index n, Vecs tops) {
        for (auto [top, score] : llvm::zip_equal(tops, scoresOf(edgeAt(n))))
          top = greaterOf(score, top);
        return tops;
      });
    });
    markLong(k.b);
    return tops;
  }

  /// Stores the weights of `count` edges from `from` on, not divided yet, and gives their sums. Fetches the values.
  Vecs weigh(const Index &from, const Index &count, const Vecs &tops) {
    return k.loop(0, count, 1, Vecs(registers, splat(0)), [&](Index n, Vecs sums) {
      Index edge = edgeAt(from + n);
      prefetch(valuesOf(edge));
      for (auto [number, score] : llvm::enumerate(scoresOf(edge))) {
        Vec weight = exp2(k, (score - tops[number]) * kLog2E);
        weights.setVector(weight, (n * registers + number) * lanes);
        sums[number] = sums[number] + weight;
      }
      return sums;
    });
  }

  void prefetch(const Index &row) {
    for (int64_t n = 0; n < std::min(heads * width, kMostFetched); n += kLineFloats)
      values.prefetch(row + n);
  }

  void addValues(const Index &from, const Index &count, ArrayRef<Piece> group) {
    Vecs none(group.size(), k.splat(k.f32(0), valueLanes));
    Vecs sums = k.loop(0, count, 1, none, [&](Index n, Vecs sums) {
      Index row = valuesOf(edgeAt(from + n));
      Vec weight;
      for (auto [number, piece] : llvm::enumerate(group)) {
        if (number == 0 || piece.head != group[number - 1].head)
          weight = k.splat(weights(n * (registers * lanes) + piece.head), valueLanes);
        sums[number] = fma(weight, load(values, row, piece), sums[number]);
      }
      return sums;
    });
    for (auto [sum, piece] : llvm::zip_equal(sums, group))
      store(load(result, first, piece) + sum, piece);
  }

  void divide(const Vecs &sums) {
    for (auto [n, sum] : llvm::enumerate(sums))
      weights.setVector(1.0 / (spec.epsilon != 0 ? sum + spec.epsilon : sum), int64_t(n) * lanes);
    for (const Piece &piece : pieces)
      store(load(result, first, piece) * k.splat(weights(piece.head), valueLanes), piece);
  }

  Code &k;
  const SegmentAttentionSpec &spec;
  const int64_t heads, width, lanes, valueLanes, registers;
  Buffer scores, values, order, result, rows, weights;
  SmallVector<Piece> pieces;
  Index first, begin, end; ///< of the result, and of the node's list
};

} // namespace

SegmentAttentionSpec SegmentAttentionSpec::get(SegmentAttentionOp op, TargetAttr target) {
  SegmentAttentionSpec spec;
  spec.hasRows = op.getRows() != nullptr;
  spec.lanes = target.getF32Lanes();
  spec.epsilon = static_cast<float>(op.getEpsilon().convertToDouble());
  if (std::optional<APFloat> floor = op.getFloor())
    spec.floor = static_cast<float>(floor->convertToDouble());
  llvm::append_range(spec.types, llvm::map_range(op->getOperands(), bufferOf));
  spec.types.push_back(bufferOf(op.getResult()));
  return spec;
}

int64_t SegmentAttentionSpec::headLanes() const {
  return std::min<int64_t>(lanes, std::max<int64_t>(llvm::PowerOf2Ceil(heads()), 4));
}

int64_t SegmentAttentionSpec::valueLanes() const {
  return std::min<int64_t>(lanes, std::max<int64_t>(llvm::PowerOf2Ceil(width()), 4));
}

std::string SegmentAttentionSpec::symbol() const {
  std::string sizes = llvm::join(llvm::map_range(types, shapeText), "x");
  std::string name = llvm::formatv("segment_attention_f32{0}_{1}_v{2}", hasRows ? "_rows" : "", sizes, lanes);
  if (epsilon != 0)
    name += llvm::formatv("_e{0:x-}", llvm::bit_cast<uint32_t>(epsilon));
  if (floor)
    name += llvm::formatv("_f{0:x-}", llvm::bit_cast<uint32_t>(*floor));
  return name;
}

bool canBuildSegmentAttention(const SegmentAttentionSpec &spec, std::string *reason) {
  if (!spec.types.front().getElementType().isF32())
    return fail(reason, "its scores are not f32");
  if (ShapedType::isDynamic(spec.heads()) || ShapedType::isDynamic(spec.width()))
    return fail(reason, "the number of its heads or their width is open");
  if (spec.heads() == 0 || spec.width() == 0)
    return fail(reason, "it has no element");
  if (spec.heads() * llvm::divideCeil(spec.width(), spec.valueLanes()) > kMostRegisters)
    return fail(reason, "a row of its result is longer than 512 registers");
  return true;
}

func::FuncOp buildSegmentAttention(OpBuilder &builder, Location loc, const SegmentAttentionSpec &spec) {
  assert(canBuildSegmentAttention(spec));
  KernelFunction f(builder, loc, spec.symbol());
  SmallVector<Buffer> buffers;
  for (MemRefType type : spec.types)
    buffers.push_back(f.buffer(type));
  f.k.parallel(buffers.back().dim(0), [&](Index node) { NodeEdges(f.k, spec, buffers, node).emit(); });
  return f.function;
}

} // namespace attn
