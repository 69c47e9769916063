#include "dialects/attn/BlockProductOps.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/Blocks.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

// Operators of com.microsoft on matrices whose numbers are codes of a few bits, with a scale for each block of them.

using namespace mlir;

namespace attn::onnx {

FailureOr<Tensor> dequantizeBlocks(Node &n, const Blocks &blocks) {
  const Tensor &x = blocks.codes;
  auto checkShape = [&](const Tensor &t, StringRef what) -> LogicalResult {
    if (t.rank() != x.rank())
      return n.error() << "expects " << what << " of rank " << x.rank() << ", has rank " << t.rank();
    for (int64_t dim = 0; dim < x.rank(); ++dim) {
      Expr size = dim == blocks.axis ? n.symbols().ceilDiv(x.shape[dim], blocks.block) : x.shape[dim];
      if (failed(n.requireEqual(t.shape[dim], size, "{0} " + what.str() + " for {1} blocks of a dimension")))
        return failure();
    }
    return success();
  };
  if (failed(checkShape(blocks.scales, "scales")) || (blocks.zeros && failed(checkShape(*blocks.zeros, "zero points"))))
    return failure();
  Tensor result;
  result.dtype = blocks.scales.dtype;
  result.shape = x.shape;
  bool isUnsigned = !blocks.isE4M3 && !isSigned(x.dtype);
  Value zeros = blocks.zeros ? n.value(*blocks.zeros) : Value();
  result.value = DequantizeBlocksOp::create(n.builder(), n.loc(), n.type(result.dtype, result.shape), n.value(x),
                                            n.value(blocks.scales), zeros, blocks.axis, blocks.block, blocks.bits,
                                            blocks.zeroPoint, isUnsigned, blocks.narrowRows, blocks.isE4M3);
  return result;
}

namespace {

/// Rows of `size` numbers of `bits` bits, 8 / bits a byte and the first in its low bits, as one a byte.
std::vector<char> unpackRows(ArrayRef<char> bytes, int64_t rows, int64_t size, int64_t bits) {
  int64_t perByte = 8 / bits, rowBytes = rows ? bytes.size() / rows : 0;
  std::vector<char> numbers;
  numbers.reserve(rows * size);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = 0; at < size; ++at) {
      auto byte = static_cast<uint8_t>(bytes[row * rowBytes + at / perByte]);
      numbers.push_back(static_cast<char>(byte >> at % perByte * bits & ((1 << bits) - 1)));
    }
  return numbers;
}

//===----------------------------------------------------------------------===//
// MatMulNBits
//===----------------------------------------------------------------------===//

/// The matrix N x K of a MatMulNBits.
struct PackedMatrix {
  int64_t n, k, bits, block;
  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t blockBytes() const { return block * bits / 8; }
  int64_t zeroBytes() const { return (blocks() * bits + 7) / 8; }
};

/// The block of each column, input 4; nothing where it is the one that it lies in anyway.
FailureOr<std::optional<Tensor>> readGroups(Node &n, const PackedMatrix &w) {
  if (!n.hasInput(4))
    return std::optional<Tensor>();
  std::optional<std::vector<char>> bytes = n.constantBytes(n.input(4));
  if (!bytes || n.input(4).dtype != DType::I32)
    return n.unsupported() << "g_idx that is not a constant of int32";
  int64_t count = bytes->size() / sizeof(int32_t);
  if (n.input(4).rank() != 1 || count < w.k)
    return n.error() << "expects g_idx of K = " << w.k << " entries, has " << count;
  bool isTrivial = true;
  for (int64_t column = 0; column < w.k; ++column) {
    int32_t group;
    std::memcpy(&group, &(*bytes)[column * sizeof group], sizeof group);
    if (group < 0 || group >= w.blocks())
      return n.error() << "g_idx names block " << group << " of " << w.blocks() << " for column " << column;
    isTrivial &= group == column / w.block;
  }
  return isTrivial ? std::optional<Tensor>() : std::optional<Tensor>(n.input(4));
}

/// `bits` bits of a packed row, the entry `at` of it.
Num unpacked(OpBuilder &b, Location loc, Value tensor, ArrayRef<Value> row, Value at, int64_t bits) {
  Value perByte = arith::ConstantIndexOp::create(b, loc, 8 / bits);
  Value byte = arith::DivUIOp::create(b, loc, at, perByte), rest = arith::RemUIOp::create(b, loc, at, perByte);
  SmallVector<Value> place(row);
  place.push_back(byte);
  Num element = convert(load(b, loc, tensor, DType::U8, place), DType::I32);
  Num shift = fromIndex(b, loc, DType::I32, rest) * element.constant(bits);
  Num moved = element >> shift;
  return moved & element.constant((int64_t(1) << bits) - 1);
}

/// The matrix where the run alone has its codes, or its columns are not in the order of their blocks.
FailureOr<Tensor> generated(Node &n, const PackedMatrix &w, const std::optional<Tensor> &groups, DType dtype) {
  Tensor zeros;
  bool packedZeros = n.hasInput(3) && n.input(3).dtype == DType::U8;
  FailureOr<Tensor> codes = n.reshape(n.input(1), {Expr(w.n), Expr(w.blocks()), Expr(w.blockBytes())});
  FailureOr<Tensor> scales = n.reshape(n.input(2), {Expr(w.n), Expr(w.blocks())});
  if (failed(codes) || failed(scales))
    return failure();
  if (n.hasInput(3)) {
    FailureOr<Tensor> view = n.reshape(n.input(3), {Expr(w.n), Expr(packedZeros ? w.zeroBytes() : w.blocks())});
    if (failed(view))
      return failure();
    zeros = *view;
  }
  Value code = n.value(*codes), scale = n.value(*scales), zero = n.hasInput(3) ? n.value(zeros) : Value(),
        group = groups ? n.value(*groups) : Value();
  Tensor out;
  out.dtype = dtype;
  out.shape.append({Expr(w.n), Expr(w.k)});
  DType wide = computeDType(dtype);
  out.value = n.generate(dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value size = arith::ConstantIndexOp::create(b, loc, w.block);
    Value block = arith::DivUIOp::create(b, loc, at[1], size), inside = arith::RemUIOp::create(b, loc, at[1], size);
    Num q = convert(unpacked(b, loc, code, {at[0], block}, inside, w.bits), wide);
    if (group)
      block = arith::IndexCastOp::create(b, loc, b.getIndexType(), load(b, loc, group, DType::I32, at[1]).value());
    Num z = q.constant(double(int64_t(1) << (w.bits - 1)));
    if (packedZeros)
      z = convert(unpacked(b, loc, zero, at[0], block, w.bits), wide);
    else if (zero)
      z = convert(load(b, loc, zero, zeros.dtype, {at[0], block}), wide);
    Num s = convert(load(b, loc, scale, scales->dtype, {at[0], block}), wide);
    return convert((q - z) * s, dtype).value();
  });
  return out;
}

/// The matrix N x K as numbers of `dtype`.
FailureOr<Tensor> matrixOf(Node &n, const PackedMatrix &w, DType dtype) {
  FailureOr<std::optional<Tensor>> groups = readGroups(n, w);
  if (failed(groups))
    return failure();
  std::optional<std::vector<char>> codes = n.constantBytes(n.input(1)), zeros;
  bool packedZeros = n.hasInput(3) && n.input(3).dtype == DType::U8;
  if (packedZeros)
    zeros = n.constantBytes(n.input(3));
  int64_t codeBytes = w.n * w.blocks() * w.blockBytes(), zeroBytes = w.n * w.zeroBytes();
  if (codes && static_cast<int64_t>(codes->size()) != codeBytes)
    return n.error() << "expects " << codeBytes << " bytes of codes (N = " << w.n << ", " << w.blocks() << " blocks of "
                     << w.blockBytes() << " bytes), has " << codes->size();
  if (zeros && static_cast<int64_t>(zeros->size()) != zeroBytes)
    return n.error() << "expects " << zeroBytes << " bytes of zero points (N = " << w.n << ", " << w.zeroBytes()
                     << " bytes each), has " << zeros->size();
  if (n.hasInput(3) && !packedZeros && n.input(3).dtype != n.input(2).dtype)
    return n.error() << "expects zero points of uint8 or the scales' type, has " << dtypeName(n.input(3).dtype);
  if (*groups || !codes || (packedZeros && !zeros) || n.input(2).dtype != dtype)
    return generated(n, w, *groups, dtype);
  FailureOr<Tensor> scales = n.reshape(n.input(2), {Expr(w.n), Expr(w.blocks())});
  if (failed(scales))
    return failure();
  Blocks blocks;
  blocks.codes = n.constantTensor(DType::U8, {w.n, w.k}, unpackRows(*codes, w.n, w.k, w.bits));
  blocks.scales = *scales;
  if (zeros)
    blocks.zeros = n.constantTensor(DType::U8, {w.n, w.blocks()}, unpackRows(*zeros, w.n, w.blocks(), w.bits));
  else if (n.hasInput(3)) {
    FailureOr<Tensor> floats = n.reshape(n.input(3), {Expr(w.n), Expr(w.blocks())});
    if (failed(floats))
      return failure();
    blocks.zeros = *floats;
  }
  blocks.axis = 1;
  blocks.block = w.block;
  blocks.bits = w.bits;
  blocks.zeroPoint = int64_t(1) << (w.bits - 1);
  blocks.narrowRows = n.intAttr("accuracy_level", 0) == 4;
  return dequantizeBlocks(n, blocks);
}

/// `a` times the transpose of `matrix`, N x K, and what input `bias` adds.
LogicalResult setProduct(Node &n, const Tensor &a, const Tensor &matrix, size_t bias) {
  LabelledTensor left{a, {}}, right{matrix, {-1, -2}};
  SmallVector<Label> out;
  for (int64_t d = 0; d + 1 < a.rank(); ++d) {
    left.labels.push_back(d);
    out.push_back(d);
  }
  left.labels.push_back(-2);
  out.push_back(-1);
  FailureOr<Tensor> y = contractLabels(n, a.dtype, left, right, out);
  if (failed(y))
    return failure();
  if (!n.hasInput(bias)) {
    n.setOutput(0, *y);
    return success();
  }
  return setFormula(n, a.dtype, {*y, n.input(bias)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

LogicalResult importMatMulNBits(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &a = n.input(0);
  PackedMatrix w{n.intAttr("N", 0), n.intAttr("K", 0), n.intAttr("bits", 4), n.intAttr("block_size", 0)};
  if (w.bits != 2 && w.bits != 4 && w.bits != 8)
    return n.unsupported() << "weights of " << w.bits << " bits";
  if (w.n < 1 || w.k < 1 || w.block < 16 || (w.block & (w.block - 1)) || w.n > INT32_MAX || w.k > INT32_MAX ||
      w.block > INT32_MAX)
    return n.error() << "expects N and K of at least 1 and block_size a power of 2 from 16 on, has " << w.n << ", "
                     << w.k << " and " << w.block;
  if (n.intAttr("weight_prepacked", 0))
    return n.unsupported() << "weights that ONNX Runtime has packed";
  if (n.input(1).dtype != DType::U8 || !isFloat(n.input(2).dtype))
    return n.error() << "expects uint8 weights and float scales, has " << dtypeName(n.input(1).dtype) << " and "
                     << dtypeName(n.input(2).dtype);
  if (a.rank() < 1 || failed(n.requireEqual(a.shape.back(), Expr(w.k), "A has {0} columns, K is {1}")))
    return a.rank() < 1 ? n.error() << "expects A of rank at least 1" : failure();
  FailureOr<Tensor> weights = matrixOf(n, w, a.dtype);
  return failed(weights) ? failure() : setProduct(n, a, *weights, 5);
}

//===----------------------------------------------------------------------===//
// MatMulBnb4
//===----------------------------------------------------------------------===//

/// What codes of bitsandbytes stand for: FP4 (quant_type 0) and NF4 (1).
constexpr float kBnb4Values[2][16] = {
    {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f, -5.208333333e-03f,
     -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

/// The matrix N x K: element i is the value of code i, two codes a byte and the first in its high bits, times the
/// scale of block i / block.
FailureOr<Tensor> bnb4Matrix(Node &n, int64_t type, const PackedMatrix &w, DType dtype) {
  std::vector<char> table(sizeof(kBnb4Values[type]));
  std::memcpy(table.data(), kBnb4Values[type], table.size());
  Value values = n.value(n.constantTensor(DType::F32, {16}, table));
  Value codes = n.value(n.input(1)), scales = n.value(n.input(2));
  Tensor out;
  out.dtype = dtype;
  out.shape.append({Expr(w.n), Expr(w.k)});
  out.value = n.generate(dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto number = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
    Value place = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, at[0], number(w.k)), at[1]);
    Value byte = arith::DivUIOp::create(b, loc, place, number(2)),
          odd = arith::RemUIOp::create(b, loc, place, number(2));
    Num pair = convert(load(b, loc, codes, DType::U8, byte), DType::I32);
    Num code = select(fromIndex(b, loc, DType::I32, odd) == pair.constant(0), pair >> 4, pair & pair.constant(15));
    Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), code.value());
    Value block = arith::DivUIOp::create(b, loc, place, number(w.block));
    Num scale = convert(load(b, loc, scales, n.input(2).dtype, block), DType::F32);
    return convert(load(b, loc, values, DType::F32, index) * scale, dtype).value();
  });
  return out;
}

/// The same of a model's weights, computed here and not in each run.
std::optional<Tensor> bnb4Weight(Node &n, int64_t type, const PackedMatrix &w) {
  std::optional<std::vector<char>> codes = n.constantBytes(n.input(1)), scales = n.constantBytes(n.input(2));
  if (!codes || !scales || n.input(2).dtype != DType::F32)
    return std::nullopt;
  std::vector<char> numbers(w.n * w.k * sizeof(float));
  for (int64_t i = 0; i < w.n * w.k; ++i) {
    auto pair = static_cast<uint8_t>((*codes)[i / 2]);
    float scale, number;
    std::memcpy(&scale, scales->data() + i / w.block * sizeof(float), sizeof(float));
    number = kBnb4Values[type][i % 2 ? pair & 15 : pair >> 4] * scale;
    std::memcpy(numbers.data() + i * sizeof(float), &number, sizeof(float));
  }
  return n.constantTensor(DType::F32, {w.n, w.k}, numbers);
}

LogicalResult importMatMulBnb4(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &a = n.input(0);
  PackedMatrix w{n.intAttr("N", 0), n.intAttr("K", 0), 4, n.intAttr("block_size", 0)};
  int64_t type = n.intAttr("quant_type", -1);
  if (type != 0 && type != 1)
    return n.error() << "expects quant_type 0 (FP4) or 1 (NF4), has " << type;
  if (n.intAttr("transB", 1) != 1 || n.intAttr("training_mode", 0))
    return n.unsupported() << "transB = 0 or training_mode = 1";
  if (w.n < 1 || w.k < 1 || w.block < 16 || (w.block & (w.block - 1)) || w.n > INT32_MAX || w.k > INT32_MAX ||
      w.block > INT32_MAX || !checkedBytes({w.n, w.k}, sizeof(float)))
    return n.error() << "expects N and K of at least 1 and block_size a power of 2 from 16 on, has " << w.n << ", "
                     << w.k << " and " << w.block;
  if (n.input(1).dtype != DType::U8 || !isFloat(n.input(2).dtype))
    return n.error() << "expects uint8 weights and float scales, has " << dtypeName(n.input(1).dtype) << " and "
                     << dtypeName(n.input(2).dtype);
  int64_t count = w.n * w.k;
  for (auto [i, size] : {std::pair(1, (count + 1) / 2), std::pair(2, (count + w.block - 1) / w.block)}) {
    const Tensor &t = n.input(i);
    if (t.rank() != 1)
      return n.error() << "expects input " << i << " of rank 1, has rank " << t.rank();
    if (failed(n.requireEqual(t.shape[0], Expr(size), "{0} elements of B or absmax, N and K ask for {1}")))
      return failure();
  }
  if (a.rank() < 1 || failed(n.requireEqual(a.shape.back(), Expr(w.k), "A has {0} columns, K is {1}")))
    return a.rank() < 1 ? n.error() << "expects A of rank at least 1" : failure();
  FailureOr<Tensor> matrix = failure();
  if (std::optional<Tensor> weight = bnb4Weight(n, type, w))
    matrix = n.cast(*weight, a.dtype);
  else
    matrix = bnb4Matrix(n, type, w, a.dtype);
  return failed(matrix) ? failure() : setProduct(n, a, *matrix, 3);
}

//===----------------------------------------------------------------------===//
// GatherBlockQuantized
//===----------------------------------------------------------------------===//

/// Input `i`, of uint8, with its numbers one a byte.
FailureOr<Tensor> unpackedInput(Node &n, size_t i, int64_t size, int64_t bits) {
  const Tensor &t = n.input(i);
  std::optional<std::vector<char>> bytes = n.constantBytes(t);
  if (!bytes)
    return n.unsupported() << "packed numbers that are computed";
  SmallVector<int64_t> shape;
  for (const Expr &extent : t.shape)
    shape.push_back(extent.constant().value_or(0));
  int64_t held = shape.back() * 8 / bits, rows = held ? bytes->size() / shape.back() : 0;
  if (size > held)
    return n.error() << "expects " << size << " numbers of " << bits << " bits in a row of input " << i << ", has "
                     << held;
  shape.back() = size;
  return n.constantTensor(DType::U8, shape, unpackRows(*bytes, rows, size, bits));
}

LogicalResult importGatherBlockQuantized(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 2)))
    return failure();
  const Tensor &data = n.input(0);
  bool isCode = data.dtype == DType::I4 || data.dtype == DType::U4 || data.dtype == DType::U8;
  if (data.rank() < 1 || !isCode)
    return n.error() << "expects data of int4, uint4 or uint8, has " << dtypeName(data.dtype);
  FailureOr<int64_t> gatherAxis = n.axis(n.intAttr("gather_axis", 0), data.rank());
  FailureOr<int64_t> axis = n.axis(n.intAttr("quantize_axis", 1), data.rank());
  if (failed(gatherAxis) || failed(axis))
    return failure();
  Blocks blocks{data, n.input(2), {}, *axis, n.intAttr("block_size", 128), n.intAttr("bits", 4)};
  if (blocks.block < 16 || (blocks.block & (blocks.block - 1)) || (blocks.bits != 4 && blocks.bits != 8))
    return n.error() << "expects 4 or 8 bits and a block_size that is a power of 2 from 16 on, has " << blocks.bits
                     << " and " << blocks.block;
  if (data.dtype != DType::U8 && blocks.bits != 4)
    return n.error() << "expects 4 bits for data of " << dtypeName(data.dtype) << ", has " << blocks.bits;
  if (n.hasInput(3)) {
    if (failed(expectSameDType(n, 0, 3)))
      return failure();
    blocks.zeros = n.input(3);
  }
  if (data.dtype == DType::U8) {
    if (*axis != data.rank() - 1)
      return n.error() << "expects packed data quantised along its last dimension, not " << *axis;
    if (*gatherAxis == *axis)
      return n.error() << "gathers packed data along dimension " << *axis
                       << ", in which the blocks lie (quantize_axis)";
    blocks.zeroPoint = int64_t(1) << (blocks.bits - 1);
    int64_t size = data.shape.back().constant().value_or(0) * 8 / blocks.bits;
    FailureOr<Tensor> codes = unpackedInput(n, 0, size, blocks.bits);
    if (failed(codes))
      return failure();
    blocks.codes = *codes;
    if (blocks.zeros) {
      FailureOr<Tensor> zeros = unpackedInput(n, 3, (size + blocks.block - 1) / blocks.block, blocks.bits);
      if (failed(zeros))
        return failure();
      blocks.zeros = *zeros;
    }
  }
  FailureOr<Tensor> table = dequantizeBlocks(n, blocks);
  if (failed(table))
    return failure();
  FailureOr<Tensor> rows = gather(n, *table, n.input(1), *gatherAxis);
  if (failed(rows))
    return failure();
  n.setOutput(0, *rows);
  return success();
}

} // namespace

void registerBlockQuantizedOps(OpRegistry &registry) {
  const char *domain = "com.microsoft";
  registry.add("MatMulNBits", {1}, importMatMulNBits, domain);
  registry.add("MatMulBnb4", {1}, importMatMulBnb4, domain);
  registry.add("GatherBlockQuantized", {1}, importGatherBlockQuantized, domain);
}

} // namespace attn::onnx
