// States of the rows that live on.
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/Search.h"

using namespace mlir;
using namespace attn;

/// Copies elements [begin, end) behind `there` to those behind `here`.
static void copy(Code &k, const Buffer &from, Index there, const Buffer &to, Index here, Place begin, Index end,
                 int64_t threads) {
  auto one = [&](Index n) { to.set(from(there + n), here + n); };
  Index first = k.asIndex(begin.at(end));
  if (threads > 1) { // by a block
    Index thread = k.asIndex(gpu::ThreadIdOp::create(k.b, k.loc, gpu::Dimension::x));
    return k.loop(first + thread, end, threads, one);
  }
  constexpr int64_t kLanes = 16;
  Index whole = end - (end - first) % kLanes;
  k.loop(first, whole, kLanes, [&](Index n) { to.setVector(from.vector(kLanes, there + n), here + n); });
  k.loop(whole, end, 1, one);
}

// Rows that are moved from stay where they are, so that all move in any order
// within one buffer. In another buffer everything is written.
func::FuncOp attn::buildSearchMove(OpBuilder &b, StringRef symbol, const SearchMoveSpec &spec) {
  constexpr int64_t kDynamic = ShapedType::kDynamic;
  KernelFunction f(b, symbol);
  Code &k = f.k;
  Type i64 = b.getI64Type();
  Buffer parents = f.buffer({kDynamic}, i64), kin = f.buffer({kDynamic, spec.width + 1}, i64);
  Index first = f.index(), added = f.index(), columns = f.index();
  auto type = MemRefType::get(spec.state.getShape(), spec.state.getElementType());
  Buffer in = f.buffer(type), out = f.buffer(type);

  int64_t before = std::min(spec.rowsDim, spec.growDim), behind = std::max(spec.rowsDim, spec.growDim);
  bool rowsFirst = before == spec.rowsDim;
  Index rows = parents.dim(0), front = in.count(0, before), middle = in.count(before + 1, behind);
  Index stride = in.count(rowsFirst ? behind : behind + 1);
  Index lines = rows * middle, room = in.dim(before);
  if (rowsFirst) { // positions to elements
    Index each = in.count(behind + 1);
    first = first * each, added = added * each, columns = columns * each;
  }
  Buffer from = in.flat(), to = out.flat();
  Mask inPlace = in.address() == out.address();

  // From which element or position on row `row` differs from its parent.
  auto shared = [&](Index row, Index parent) {
    auto known = [&] {
      Index slot = parent - row / spec.width * spec.width;
      Index steps = toIndex(kin(row, slot));
      return select(parent == row, columns, first + steps * added);
    };
    return k.choose(inPlace, known, [&] { return k.index(0); });
  };
  k.parallel(front * lines, [&](Index n) {
    if (rowsFirst) {
      // The positions of a row lie side by side: a copy for each dimension between the two.
      Index row = n / middle % rows, parent = toIndex(parents(row)), here = n * stride;
      Index there = here + (parent - row) * (middle * stride);
      copy(k, from, there, to, here, shared(row, parent), columns, spec.threads);
    } else {
      // The rows of a position lie side by side: a copy for each position.
      Index line = n % lines, row = line % rows, parent = toIndex(parents(row)), position = lines * stride;
      Index start = n / lines * room * position + line * stride;
      k.loop(shared(row, parent), columns, 1, [&](Index at) {
        Index here = start + at * position, there = here + (parent - row) * stride;
        copy(k, from, there, to, here, 0, stride, spec.threads);
      });
    }
  });
  return f.function;
}
