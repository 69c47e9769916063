#include "passes/graph/decompose/Decompose.h"

#include "dialects/attn/Activation.h"
#include "dialects/attn/RecurrentLayer.h"
#include "passes/graph/Formulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {
namespace {

/// One layer as linalg: per direction one contraction of the whole input and a
/// loop over the steps, whose states are updated in place.
class LayerWriter {
public:
  LayerWriter(const RecurrentLayer &layer, OpBuilder &b)
      : layer(layer), b(b), loc(layer.op->getLoc()), acc(accumulatorType(layer.elementType())),
        hidden(layer.hiddenSize()), steps(tensor::getMixedSize(b, loc, layer.input, layer.stepDim())),
        batch(tensor::getMixedSize(b, loc, layer.input, layer.batchDim())) {}

  SmallVector<Value> write();

private:
  /// What is read of one direction, as matrices and vectors.
  struct DirectionData {
    int64_t number;
    Value projected, recurrence, bias, peephole; // bias and peephole may be null
  };
  /// What a step adds up before the activation of gate `gate`, as operands of
  /// a generic over (batch, unit).
  struct Operands {
    SmallVector<Value> values;
    SmallVector<AffineMap> maps;
  };

  void writeDirection(int64_t d, SmallVector<Value> &results);
  SmallVector<Value> writeStep(const DirectionData &data, Value t, ValueRange states);
  Value writeLstm(const DirectionData &data, Value x, Value t, Value h, Value &c);
  Value writeGru(const DirectionData &data, Value x, Value t, Value h);

  Value contract(Value a, Value rows, ArrayRef<OpFoldResult> leading, int64_t n);
  Value project(int64_t d, ArrayRef<OpFoldResult> leading);
  Value dropDirection(Value value, int64_t d);
  Value unitSlice(Value value, int64_t first, int64_t count);
  Value stateOf(Value whole, int64_t d);
  Operands gate(const DirectionData &data, Value x, Value hr, int64_t gate, bool withRecurrenceBias = true);
  Num sum(ArrayRef<Num> terms);
  Num activate(int64_t d, int64_t function, Num x);
  Value update(ArrayRef<Value> inputs, ArrayRef<AffineMap> maps, Value init, Value t, bool isSequence, NumBody body);

  Value replace(const Operands &own, Value h, Value t, NumBody body);

  AffineMap matrix() { return b.getMultiDimIdentityMap(2); }
  AffineMap perUnit() { return AffineMap::get(2, 0, b.getAffineDimExpr(1)); }
  AffineMap perItem() { return AffineMap::get(2, 0, b.getAffineDimExpr(0)); }
  OpFoldResult index(int64_t value) { return b.getIndexAttr(value); }

  const RecurrentLayer &layer;
  OpBuilder &b;
  Location loc;
  FloatType acc;
  int64_t hidden;
  OpFoldResult steps, batch;
};

/// sum_k a[.., k] rows[n, k], where `leading` are the sizes before k.
Value LayerWriter::contract(Value a, Value rows, ArrayRef<OpFoldResult> leading, int64_t n) {
  SmallVector<OpFoldResult> sizes(leading);
  sizes.push_back(index(n));
  return contraction(b, loc, sizes, acc, a, rows, rowProductMaps(b.getContext(), sizes.size(), /*transposed=*/true));
}

/// The input of all steps times the weight of direction `d`; an input that is projected has its directions side by
/// side.
Value LayerWriter::project(int64_t d, ArrayRef<OpFoldResult> leading) {
  int64_t columns = layer.numGates() * hidden;
  if (layer.weight)
    return contract(layer.input, dropDirection(layer.weight, d), leading, columns);
  SmallVector<OpFoldResult> sizes(leading);
  sizes.push_back(index(columns));
  return convertTensor(b, loc, unitSlice(layer.input, d * columns, columns), acc, sizes);
}

/// Part `d` of the first dimension.
Value LayerWriter::dropDirection(Value value, int64_t d) {
  return value ? placeAlong(b, loc, value, 0, index(d)) : value;
}

/// Elements [first, first + count) of the last dimension of a matrix, of the
/// first one of a vector.
Value LayerWriter::unitSlice(Value value, int64_t first, int64_t count) {
  return sliceAlong(b, loc, value, cast<RankedTensorType>(value.getType()).getRank() - 1, index(first), index(count));
}

/// The initial state of direction `d` in the accumulator's type.
Value LayerWriter::stateOf(Value whole, int64_t d) {
  SmallVector<OpFoldResult> sizes{batch, index(hidden)};
  if (!whole)
    return filledTensor(b, loc, sizes, acc, 0);
  Value state = placeAlong(b, loc, whole, layer.stateDirectionDim(), index(d));
  return convertTensor(b, loc, state, acc, sizes);
}

LayerWriter::Operands LayerWriter::gate(const DirectionData &data, Value x, Value hr, int64_t gate,
                                        bool withRecurrenceBias) {
  Operands operands;
  auto add = [&](Value value, AffineMap map) {
    operands.values.push_back(value);
    operands.maps.push_back(map);
  };
  add(unitSlice(x, gate * hidden, hidden), matrix());
  if (hr)
    add(hr, matrix());
  if (data.bias) {
    add(unitSlice(data.bias, gate * hidden, hidden), perUnit());
    if (withRecurrenceBias)
      add(unitSlice(data.bias, (layer.numGates() + gate) * hidden, hidden), perUnit());
  }
  return operands;
}

Num LayerWriter::sum(ArrayRef<Num> terms) {
  Num total = convert(terms.front(), acc);
  for (const Num &term : terms.drop_front())
    total = total + convert(term, acc);
  return total;
}

Num LayerWriter::activate(int64_t d, int64_t function, Num x) {
  OpBuilder &b = x.builder();
  if (layer.clip)
    x = x.with(emitClip(b, loc, *layer.clip, x));
  return x.with(emitActivation(b, loc, layer.activation(d, function), x));
}

/// `body` of the inputs and the old value, written over `init`; items that have
/// ended at step `t` keep the old value (of a sequence: get 0).
Value LayerWriter::update(ArrayRef<Value> inputs, ArrayRef<AffineMap> maps, Value init, Value t, bool isSequence,
                          NumBody body) {
  SmallVector<Value> operands(inputs);
  SmallVector<AffineMap> operandMaps(maps);
  if (layer.lengths) {
    operands.push_back(layer.lengths);
    operandMaps.push_back(perItem());
  }
  return reduction(b, loc, operands, operandMaps, init, matrix(), formula([&](Code &k, ArrayRef<Num> x) {
                     if (!layer.lengths)
                       return body(k, x);
                     Num old = x.back();
                     SmallVector<Num> own(x.drop_back(2));
                     own.push_back(old);
                     Num computed = body(k, own);
                     Mask isActive = k.asIndex(t) < toIndex(x[x.size() - 2]);
                     return select(isActive, computed, isSequence ? constantLike(old, 0.0) : old);
                   }));
}

/// The new state from `own` and the old state, in its place. A lowering may give
/// what computes it another destination, so it is written there by an op of its own.
Value LayerWriter::replace(const Operands &own, Value h, Value t, NumBody body) {
  if (layer.lengths)
    return update(own.values, own.maps, h, t, false, body);
  Operands all = own;
  all.values.push_back(h);
  all.maps.push_back(matrix());
  Value next = elementwise(b, loc, {batch, index(hidden)}, acc, all.values, all.maps, formula(body));
  return bufferization::MaterializeInDestinationOp::create(b, loc, next.getType(), next, h).getResult();
}

Value LayerWriter::writeLstm(const DirectionData &data, Value x, Value t, Value h, Value &c) {
  int64_t d = data.number;
  Value hr = contract(h, data.recurrence, batch, 4 * hidden);
  enum { I, O, F, C };
  Operands gates[4];
  for (int64_t g : {I, O, F, C})
    gates[g] = gate(data, x, unitSlice(hr, g * hidden, hidden), g);
  auto peephole = [&](int64_t g) { return unitSlice(data.peephole, g * hidden, hidden); };

  // The new cell from the gates i, f (unless it is 1 - i) and c, and the old one.
  Operands all;
  SmallVector<std::pair<unsigned, unsigned>> spans;
  for (int64_t g : {I, F, C}) {
    if (g == F && layer.inputForget) {
      spans.emplace_back(0, 0);
      continue;
    }
    if (data.peephole && g != C) {
      gates[g].values.push_back(peephole(g));
      gates[g].maps.push_back(perUnit());
    }
    spans.emplace_back(all.values.size(), gates[g].values.size());
    llvm::append_range(all.values, gates[g].values);
    llvm::append_range(all.maps, gates[g].maps);
  }
  bool has = data.peephole != nullptr;
  auto withPeephole = [&](ArrayRef<Num> x, const Num &cell) {
    return has ? sum(x.drop_back()) + convert(x.back(), acc) * cell : sum(x);
  };
  c = update(all.values, all.maps, c, t, false, [&](Code &, ArrayRef<Num> x) {
    Num old = x.back();
    auto span = [&](unsigned n) { return x.slice(spans[n].first, spans[n].second); };
    Num i = activate(d, 0, withPeephole(span(0), old));
    Num f = layer.inputForget ? 1.0 - i : activate(d, 0, withPeephole(span(1), old));
    Num g = activate(d, 1, sum(span(2)));
    return f * old + i * g;
  });

  Operands output = gates[O];
  if (has) {
    output.values.push_back(peephole(O));
    output.maps.push_back(perUnit());
  }
  output.values.push_back(c);
  output.maps.push_back(matrix());
  return update(output.values, output.maps, h, t, false, [&](Code &k, ArrayRef<Num> x) {
    Num cell = x[x.size() - 2];
    Num o = activate(d, 0, withPeephole(x.drop_back(2), cell));
    return o * k.asNum(emitActivation(k.b, k.loc, layer.activation(d, 2), cell));
  });
}

Value LayerWriter::writeGru(const DirectionData &data, Value x, Value t, Value h) {
  int64_t d = data.number;
  enum { Z, R, N };
  auto rows = [&](int64_t first, int64_t count) -> Value {
    return sliceAlong(b, loc, data.recurrence, 0, index(first * hidden), index(count * hidden));
  };
  SmallVector<OpFoldResult> sizes{batch, index(hidden)};
  Value zr = contract(h, rows(0, 2), batch, 2 * hidden);
  auto gateValue = [&](int64_t g, Value init) -> Value {
    Operands own = gate(data, x, unitSlice(zr, g * hidden, hidden), g);
    return reduction(b, loc, own.values, own.maps, init, matrix(),
                     formula([&](ArrayRef<Num> x) { return activate(d, 0, sum(x.drop_back())); }));
  };
  Value z = gateValue(Z, emptyTensor(b, loc, sizes, acc)), r = gateValue(R, emptyTensor(b, loc, sizes, acc));

  Operands own;
  if (layer.linearBeforeReset) {
    Value hn = contract(h, rows(N, 1), batch, hidden);
    own = gate(data, x, Value(), N, /*withRecurrenceBias=*/false);
    own.values.append({hn, r});
    own.maps.append(2, matrix());
    if (data.bias) {
      own.values.push_back(unitSlice(data.bias, 5 * hidden, hidden));
      own.maps.push_back(perUnit());
    }
  } else {
    Value reset = elementwise(b, loc, sizes, acc, {h, r}, {matrix(), matrix()},
                              formula([](ArrayRef<Num> x) { return x[0] * x[1]; }));
    own = gate(data, x, contract(reset, rows(N, 1), batch, hidden), N);
  }
  own.values.push_back(z);
  own.maps.push_back(matrix());
  return replace(own, h, t, [&](Code &, ArrayRef<Num> x) {
    Num old = x.back(), update = x[x.size() - 2];
    ArrayRef<Num> parts = x.drop_back(2);
    unsigned tail = !layer.linearBeforeReset ? 0 : data.bias ? 3 : 2; // hn, r and its bias
    Num total = sum(parts.drop_back(tail));
    if (tail) {
      Num linear = parts[parts.size() - tail], reset = parts[parts.size() - tail + 1];
      if (data.bias)
        linear = linear + convert(parts.back(), acc);
      total = total + reset * linear;
    }
    Num n = activate(d, 1, total), rest = 1.0 - update;
    if (layer.mirrored)
      std::swap(rest, update);
    return rest * n + update * old;
  });
}

/// One step at time `t`: states are the sequence, h and, of an LSTM, c.
SmallVector<Value> LayerWriter::writeStep(const DirectionData &data, Value t, ValueRange states) {
  Value sequence = states[0], h = states[1], c = states.size() > 2 ? states[2] : Value();
  // The projected input of this step.
  Value x = placeAlong(b, loc, data.projected, layer.stepDim(), t);
  if (layer.cell == RecurrentLayer::Lstm) {
    h = writeLstm(data, x, t, h, c);
  } else if (layer.cell == RecurrentLayer::Gru) {
    h = writeGru(data, x, t, h);
  } else {
    Operands own = gate(data, x, contract(h, data.recurrence, batch, hidden), 0);
    h = replace(own, h, t, [&](Code &, ArrayRef<Num> x) { return activate(data.number, 0, sum(x.drop_back())); });
  }

  // Into the sequence.
  auto type = cast<RankedTensorType>(sequence.getType());
  SmallVector<OpFoldResult> at(4, index(0)), extents{index(1), index(1), batch, index(hidden)}, ones(4, index(1));
  if (layer.batchFirst)
    extents = {batch, index(1), index(1), index(hidden)};
  at[layer.stepDim()] = t;
  at[layer.sequenceDirectionDim()] = index(data.number);
  auto row = RankedTensorType::get({type.getDimSize(layer.sequenceBatchDim()), hidden}, type.getElementType());
  Value place = tensor::ExtractSliceOp::create(b, loc, row, sequence, at, extents, ones);
  place = update(h, matrix(), place, t, true,
                 [&](Code &, ArrayRef<Num> x) { return convert(x[0], type.getElementType()); });
  sequence = tensor::InsertSliceOp::create(b, loc, place, sequence, at, extents, ones);
  SmallVector<Value> next{sequence, h};
  if (c)
    next.push_back(c);
  return next;
}

/// Results are the sequence and the last states, so far without direction `d`.
void LayerWriter::writeDirection(int64_t d, SmallVector<Value> &results) {
  DirectionData data;
  data.number = d;
  SmallVector<OpFoldResult> leading{steps, batch};
  if (layer.batchFirst)
    std::swap(leading[0], leading[1]);
  data.projected = project(d, leading);
  data.recurrence = dropDirection(layer.recurrence, d);
  data.bias = dropDirection(layer.bias, d);
  data.peephole = dropDirection(layer.peephole, d);

  SmallVector<Value> states{results[0], stateOf(layer.initialH, d)};
  if (layer.cell == RecurrentLayer::Lstm)
    states.push_back(stateOf(layer.initialC, d));
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  Value end = getValueOrCreateConstantIndexOp(b, loc, steps);
  auto loop = scf::ForOp::create(b, loc, zero, end, one, states);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value t = loop.getInductionVar();
    if (layer.isReverse(d)) {
      Value last = arith::SubIOp::create(b, loc, end, one);
      t = arith::SubIOp::create(b, loc, last, t);
    }
    scf::YieldOp::create(b, loc, writeStep(data, t, loop.getRegionIterArgs()));
  }
  results[0] = loop.getResult(0);
  for (unsigned n = 1; n < results.size(); ++n) {
    auto type = cast<RankedTensorType>(results[n].getType());
    Value last = convertTensor(b, loc, loop.getResult(n), type.getElementType(), {batch, index(hidden)});
    results[n] = insertAlong(b, loc, last, results[n], layer.stateDirectionDim(), index(d));
  }
}

SmallVector<Value> LayerWriter::write() {
  ReifiedRankedShapedTypeDims shapes;
  layer.reifyShapes(b, shapes);
  SmallVector<Value> results;
  for (ArrayRef<OpFoldResult> shape : shapes)
    results.push_back(emptyTensor(b, loc, shape, layer.elementType()));
  for (int64_t d = 0; d < layer.numDirections(); ++d)
    writeDirection(d, results);
  for (auto [value, result] : llvm::zip_equal(results, layer.op->getResults()))
    value = castTo(b, loc, value, result.getType());
  return results;
}

template <typename Op> struct DecomposeRecurrent : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    RecurrentLayer layer = *RecurrentLayer::get(op);
    rewriter.replaceOp(op, LayerWriter(layer, rewriter).write());
    return success();
  }
};

} // namespace

void populateDecomposeRecurrentPatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeRecurrent<RnnOp>, DecomposeRecurrent<GruOp>, DecomposeRecurrent<LstmOp>>(patterns.getContext());
}

} // namespace attn
