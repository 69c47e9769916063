#include "test/gpu/interpreter/Machine.h"

#include <cmath>

// Section 9.7.14: warp-level matrix instructions (ldmatrix, mma.sync).

namespace ptx {
namespace {

void wholeWarp(Step &s) {
  if (s.mask != ~0u)
    s.fail("is not executed by all lanes of the warp");
}

/// ldmatrix.sync.aligned.m8n8.xN.shared.b16 (9.7.14.5.15): lanes 8m to 8m+7 hold
/// the addresses of the rows of matrix m; lane l gets elements 2(l%4) and the
/// next of row l/4, or of column l/4 with .trans.
template <unsigned N, bool Transposed> void loadMatrices(Step &s) {
  wholeWarp(s);
  const Operand &to = s.operand(0);
  if ((to.kind == Operand::Vector ? to.parts.size() : 1) != N)
    s.fail("has another number of registers than matrices");
  for (unsigned m = 0; m < N; ++m) {
    uint16_t matrix[8][8];
    for (unsigned row = 0; row < 8; ++row)
      s.loadShared(s.address(s.operand(1), 8 * m + row), matrix[row], 16, 16);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned a = lane / 4, b = 2 * (lane % 4);
      uint32_t low = Transposed ? matrix[b][a] : matrix[a][b], high = Transposed ? matrix[b + 1][a] : matrix[a][b + 1];
      s.write(to.kind == Operand::Vector ? to.parts[m] : to, lane, high << 16 | low);
    }
  }
}

const Operand &part(const Operand &operand, unsigned i) {
  return operand.kind == Operand::Vector ? operand.parts[i] : operand;
}

/// D = A B + C in f32. Products are exact, the sum is rounded once; the machine
/// rounds in an order that is not documented (9.7.14.5.14).
void multiply(Step &s, const float (*a)[16], const float (*b)[8], unsigned depth) {
  float result[16][8];
  for (unsigned row = 0; row < 16; ++row) {
    double sums[8];
    for (unsigned column = 0; column < 8; ++column)
      sums[column] = s.as<float>(s.operand(3).parts[row / 8 * 2 + column % 2], row % 8 * 4 + column / 2);
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned column = 0; column < 8; ++column)
        sums[column] += double(a[row][k]) * double(b[k][column]);
    for (unsigned column = 0; column < 8; ++column)
      result[row][column] = float(sums[column]);
  }
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned index = 0; index < 4; ++index)
      s.write(s.operand(0).parts[index], lane, result[lane / 4 + index / 2 * 8][lane % 4 * 2 + index % 2]);
}

/// m16n8k16, f16 or bf16 (9.7.14.5.8): A in 4 registers, B in 2, C and D in 4.
template <float (*Extend)(uint16_t)> void multiplyHalf(Step &s) {
  wholeWarp(s);
  float a[16][16], b[16][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned r = 0; r < 4; ++r)
      for (unsigned half = 0; half < 2; ++half)
        a[group + r % 2 * 8][pair + r / 2 * 8 + half] =
            Extend(uint16_t(s.as<uint32_t>(s.operand(1).parts[r], lane) >> 16 * half));
    for (unsigned r = 0; r < 2; ++r)
      for (unsigned half = 0; half < 2; ++half)
        b[pair + r * 8 + half][group] = Extend(uint16_t(s.as<uint32_t>(s.operand(2).parts[r], lane) >> 16 * half));
  }
  multiply(s, a, b, 16);
}

/// m16n8k8, tf32 (9.7.14.5.6). The lowest 13 bits of an operand are not read.
void multiplyTf32(Step &s) {
  wholeWarp(s);
  float a[16][16], b[16][8];
  auto read = [&](const Operand &operand, unsigned lane) {
    uint32_t bits = s.as<uint32_t>(operand, lane) & 0xffffe000;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  };
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned group = lane / 4, k = lane % 4;
    for (unsigned r = 0; r < 4; ++r)
      a[group + r % 2 * 8][k + r / 2 * 4] = read(s.operand(1).parts[r], lane);
    for (unsigned r = 0; r < 2; ++r)
      b[k + r * 4][group] = read(part(s.operand(2), r), lane);
  }
  multiply(s, a, b, 8);
}

/// m16n8k32 of bytes with sums in s32 that wrap (9.7.14.5.10): a register of A has columns 4(l%4) to + 3 of row l/4, or
/// of row l/4 + 8 (a1, a3), 16 columns further in a2 and a3; b0 rows 4(l%4) to + 3 of column l/4, b1 16 rows further.
template <typename A, typename B> void multiplyBytes(Step &s) {
  wholeWarp(s);
  int32_t a[16][32], b[32][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned group = lane / 4, first = lane % 4 * 4;
    for (unsigned byte = 0; byte < 4; ++byte) {
      for (unsigned r = 0; r < 4; ++r)
        a[group + r % 2 * 8][first + r / 2 * 16 + byte] = A(s.as<uint32_t>(s.operand(1).parts[r], lane) >> 8 * byte);
      for (unsigned r = 0; r < 2; ++r)
        b[first + r * 16 + byte][group] = B(s.as<uint32_t>(s.operand(2).parts[r], lane) >> 8 * byte);
    }
  }
  uint32_t result[16][8];
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned column = 0; column < 8; ++column) {
      uint32_t sum = s.as<uint32_t>(s.operand(3).parts[row / 8 * 2 + column % 2], row % 8 * 4 + column / 2);
      for (unsigned k = 0; k < 32; ++k)
        sum += uint32_t(a[row][k] * b[k][column]);
      result[row][column] = sum;
    }
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned index = 0; index < 4; ++index)
      s.write(s.operand(0).parts[index], lane, result[lane / 4 + index / 2 * 8][lane % 4 * 2 + index % 2]);
}

} // namespace

void addMatrixInstructions(Table &table) {
  for (const char *shared : {".shared", ".shared::cta"}) {
    std::string type = shared + std::string(".b16"), base = "ldmatrix.sync.aligned.m8n8";
    table[base + ".x1" + type] = {loadMatrices<1, false>, true},
                         table[base + ".x1.trans" + type] = {loadMatrices<1, true>, true};
    table[base + ".x2" + type] = {loadMatrices<2, false>, true},
                         table[base + ".x2.trans" + type] = {loadMatrices<2, true>, true};
    table[base + ".x4" + type] = {loadMatrices<4, false>, true},
                         table[base + ".x4.trans" + type] = {loadMatrices<4, true>, true};
  }
  table["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {multiplyHalf<fromBf16>, true};
  table["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = {multiplyHalf<fromF16>, true};
  table["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"] = {multiplyTf32, true};
  std::string bytes = "mma.sync.aligned.m16n8k32.row.col.s32.";
  table[bytes + "u8.u8.s32"] = {multiplyBytes<uint8_t, uint8_t>, true};
  table[bytes + "u8.s8.s32"] = {multiplyBytes<uint8_t, int8_t>, true};
  table[bytes + "s8.u8.s32"] = {multiplyBytes<int8_t, uint8_t>, true};
  table[bytes + "s8.s8.s32"] = {multiplyBytes<int8_t, int8_t>, true};
}

} // namespace ptx
