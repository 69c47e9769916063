#include "passes/kernels/shared/RecurrentCell.h"

#include "llvm/ADT/SmallVectorExtras.h"

using namespace mlir;

namespace attn {

RecurrentBuffers RecurrentBuffers::take(KernelFunction &f, const RecurrentSpec &spec, ArrayRef<MemRefType> weights,
                                        ArrayRef<int64_t> states) {
  Type f32 = f.k.b.getF32Type();
  int64_t directions = spec.numDirections(), hidden = spec.hidden;
  SmallVector<int64_t> input{spec.steps, spec.batch, directions, spec.numGates() * hidden},
      output{spec.steps, directions, spec.batch, hidden}, state{directions, spec.batch, hidden};
  if (spec.batchFirst) {
    std::swap(input[0], input[1]);
    output = {spec.batch, spec.steps, directions, hidden};
    std::swap(state[0], state[1]);
  }
  auto take = [&](ArrayRef<int64_t> shape, Type element, bool isThere = true) {
    return isThere ? f.buffer(shape, element) : Buffer();
  };
  RecurrentBuffers x;
  x.projected = take(input, f32);
  for (MemRefType type : weights)
    x.weights.push_back(f.buffer(type));
  x.resetBias = take({directions, hidden}, f32, spec.hasResetBias);
  x.peephole = take({directions, 3 * hidden}, f32, spec.hasPeephole);
  x.lengths = take({spec.batch}, f.k.b.getI32Type(), spec.hasLengths);
  x.initialH = take(state, f32, spec.hasInitialH);
  x.initialC = take(state, f32, spec.hasInitialC);
  x.sequence = take(output, f32);
  x.lastH = take(state, f32);
  x.lastC = take(state, f32, spec.cell == RecurrentLayer::Lstm);
  x.states = take(states, f32);
  return x;
}

RecurrentBuffers RecurrentBuffers::flat() const {
  auto flat = [](const Buffer &x) { return x.value() ? x.flat() : x; };
  // Braces: in the order of the arguments.
  return {flat(projected), llvm::map_to_vector<4>(weights, flat),
          flat(resetBias), flat(peephole),
          flat(lengths),   flat(initialH),
          flat(initialC),  flat(sequence),
          flat(lastH),     flat(lastC),
          flat(states)};
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Index RecurrentPlaces::projected(Index direction, Index time, Index item, int64_t gate, Index unit) const {
  Index row = spec.batchFirst ? item * steps + time : time * batch + item;
  return ((row * spec.numDirections() + direction) * spec.numGates() + gate) * spec.hidden + unit;
}

Index RecurrentPlaces::sequence(Index direction, Index time, Index item, Index unit) const {
  Index row = spec.batchFirst ? (item * steps + time) * spec.numDirections() + direction
                              : (time * spec.numDirections() + direction) * batch + item;
  return row * spec.hidden + unit;
}

Index RecurrentPlaces::result(Index direction, Index item, Index unit) const {
  Index row = spec.batchFirst ? item * spec.numDirections() + direction : direction * batch + item;
  return row * spec.hidden + unit;
}

Index RecurrentPlaces::state(Index plane, Index direction, Index item, Index unit) const {
  return ((plane * spec.numDirections() + direction) * batch + item) * pitch + unit;
}

Index RecurrentPlaces::timeOf(Index direction, Index step, Index count) const {
  if (spec.direction == Direction::forward)
    return step;
  Index backwards = count - 1 - step;
  return spec.direction == Direction::reverse ? backwards : select(direction == 0, step, backwards);
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

template <typename T> T RecurrentCell<T>::function(int64_t number, T x, bool isClipped) {
  if (spec.clip && isClipped)
    x = x.with(emitClip(k.b, k.loc, *spec.clip, x));
  return activation(spec.functions[number], x);
}

/// The new h; c is updated where it lies.
template <typename T> T RecurrentCell<T>::lstm(ArrayRef<T> gates) {
  enum { I, O, F, C };
  T old = state(RecurrentPlaces::kPlaneC);
  auto gate = [&](int64_t gate, int64_t position, const T &cell) {
    return function(0, spec.hasPeephole ? multiplyAdd(peephole(position), cell, gates[gate]) : gates[gate]);
  };
  T i = gate(I, 0, old), f = spec.inputForget ? 1.0 - i : gate(F, 2, old);
  T cell = multiplyAdd(f, old, i * function(1, gates[C]));
  T o = gate(O, 1, cell), h = o * function(2, cell, /*isClipped=*/false);
  setState(isActive.value() ? select(isActive, cell, old) : cell, RecurrentPlaces::kPlaneC);
  return h;
}

template <typename T> T RecurrentCell<T>::gru(ArrayRef<T> gates) {
  T old = lastH(), z, n;
  if (spec.linearBeforeReset) {
    z = function(0, gates[0]);
    T input = projected(2);
    n = function(1, multiplyAdd(function(0, gates[1]), gates[2], input));
  } else {
    z = state(RecurrentPlaces::kPlaneUpdate);
    n = function(1, gates[0]);
  }
  T rest = 1.0 - z;
  if (spec.mirrored)
    std::swap(rest, z);
  return multiplyAdd(z, old, rest * n);
}

template <typename T> void RecurrentCell<T>::update(unsigned sweep, ArrayRef<T> gates) {
  if (spec.hasTwoSweeps() && sweep == 0) {
    T old = lastH();
    setState(function(0, gates[0]), RecurrentPlaces::kPlaneUpdate);
    setState(function(0, gates[1]) * old, RecurrentPlaces::kPlaneReset);
    return;
  }
  T h = spec.cell == RecurrentLayer::Lstm  ? lstm(gates)
        : spec.cell == RecurrentLayer::Gru ? gru(gates)
                                           : function(0, gates[0]);
  T shown = h;
  if (isActive.value()) {
    shown = select(isActive, h, constantLike(h, 0.0));
    h = select(isActive, h, lastH());
  }
  setH(h);
  show(shown);
}

template class RecurrentCell<Num>;
template class RecurrentCell<Vec>;

} // namespace attn
