#include "test/gpu/interpreter/Machine.h"

#include <cmath>

// Section 9.7.15: matrix products of a warpgroup (wgmma); 9.7.18.5: setmaxnreg.
// Each of the four warps has 16 of the 64 rows, and all of B is read by each.

namespace ptx {
namespace {

void wholeWarp(Step &s) {
  if (s.mask != ~0u)
    s.fail("is not executed by all lanes of the warp");
  if (s.block.warps.size() < s.warp.id / 4 * 4 + 4)
    s.fail("is executed by a warpgroup of fewer than four warps");
}

//===----------------------------------------------------------------------===//
// Operands in shared memory (9.7.15.5.1)
//===----------------------------------------------------------------------===//

/// A matrix descriptor (9.7.15.5.1.2.2): byte addresses and strides.
struct Descriptor {
  uint64_t begin, leading, stride;
};
Descriptor readDescriptor(Step &s, uint64_t bits) {
  // Only rows of 128 bytes with their 16-byte parts exchanged are known here, from whole patterns on.
  if (bits >> 62 != 1 || (bits >> 49 & 7))
    s.fail("has a descriptor of another layout than 128 bytes swizzled");
  auto field = [&](unsigned at) { return (bits >> at & 0x3fff) * 16; };
  return {field(0), field(16), field(32)};
}

/// The swizzle of 128 bytes: bits 4 to 6 of the address, exclusive or bits 7 to 9.
uint64_t swizzled(uint64_t address) { return address ^ (address >> 7 & 7) << 4; }

constexpr unsigned kDepth = 16;

/// Calls f(address, outer, k) for each 16 bytes of an operand, which whatever the swizzle hold eight neighbours: of `k`
/// along the 128 bytes, or of `outer` where `transposed`.
constexpr unsigned kPiece = 16;
template <typename F> void forPieces(const Descriptor &at, bool transposed, unsigned first, unsigned count, F f) {
  for (unsigned outer = 0; outer < count; outer += transposed ? 8 : 1)
    for (unsigned k = 0; k < kDepth; k += transposed ? 1 : 8) {
      unsigned row = first + outer;
      uint64_t address = transposed ? at.begin + row / 64 * at.leading + row % 64 * 2 + k / 8 * at.stride + k % 8 * 128
                                    : at.begin + row / 8 * at.stride + row % 8 * 128 + k * 2;
      f(swizzled(address), outer, k);
    }
}

/// Whether pieces of an operand of `count` rows may lie there; false saves a look at each.
bool mayReach(const Descriptor &at, bool transposed, unsigned count, uint64_t address, uint32_t bytes) {
  constexpr uint64_t kPattern = 1024;
  uint64_t last = transposed ? count / 64 * at.leading + at.stride : count / 8 * at.stride;
  return address + bytes > at.begin / kPattern * kPattern && address < at.begin + last + 2 * kPattern;
}

/// Calls f(outer, k, element).
template <typename F>
void forElements(Step &s, const Descriptor &at, bool transposed, unsigned first, unsigned count, F f) {
  forPieces(at, transposed, first, count, [&](uint64_t address, unsigned outer, unsigned k) {
    uint16_t values[kPiece / 2];
    s.loadSharedAsync(address, values, sizeof(values));
    for (unsigned i = 0; i < kPiece / 2; ++i)
      f(outer + (transposed ? i : 0), k + (transposed ? 0 : i), values[i]);
  });
}

/// The two operands of a product; of A only what is in memory, and only the rows of the warp.
struct Operands {
  bool inRegisters, transposesA, transposesB;
  unsigned firstRow, columns;
};
constexpr unsigned kRows = 16;
Operands operandsOf(Step &s, const PendingProduct &product, const Warp &warp) {
  const std::vector<Operand> &operands = product.in->operands;
  bool inRegisters = operands[1].kind == Operand::Vector;
  return {inRegisters, !inRegisters && s.read(operands[6], 0), bool(s.read(operands.back(), 0)), warp.id % 4 * kRows,
          unsigned(2 * operands[0].parts.size())};
}

//===----------------------------------------------------------------------===//
// Products (9.7.15.5.2)
//===----------------------------------------------------------------------===//

/// Sums of a warp: register j of lane l has row l/4 + 8 (j/2 % 2), column 8 (j/4) + 2 (l%4) + j%2 (9.7.15.5.1.1).
template <float (*Extend)(uint16_t)> void multiply(Step &s, const PendingProduct &product, std::vector<float> &sums) {
  const std::vector<Operand> &operands = product.in->operands;
  const Operands of = operandsOf(s, product, s.warp);
  const unsigned columns = of.columns;
  double a[kRows][kDepth];
  std::vector<double> b(kDepth * columns), total(columns);
  if (!of.inRegisters)
    forElements(s, readDescriptor(s, product.left), of.transposesA, of.firstRow, kRows,
                [&](unsigned row, unsigned k, uint16_t value) { a[row][k] = Extend(value); });
  for (unsigned row = 0; of.inRegisters && row < kRows; ++row)
    for (unsigned k = 0; k < kDepth; ++k) {
      const Operand &part = operands[1].parts[k / 8 * 2 + row / 8];
      a[row][k] = Extend(uint16_t(s.as<uint32_t>(part, row % 8 * 4 + k % 8 / 2) >> 16 * (k % 2)));
    }
  forElements(s, readDescriptor(s, product.right), of.transposesB, 0, columns,
              [&](unsigned column, unsigned k, uint16_t value) { b[k * columns + column] = Extend(value); });
  for (unsigned row = 0; row < kRows; ++row) {
    auto sum = [&](unsigned column) -> float & {
      return sums[(column / 8 * 4 + row / 8 * 2 + column % 2) * kLanes + row % 8 * 4 + column % 8 / 2];
    };
    for (unsigned column = 0; column < columns; ++column)
      total[column] = product.accumulates ? sum(column) : 0.0f;
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned column = 0; column < columns; ++column)
        total[column] += a[row][k] * b[k * columns + column];
    for (unsigned column = 0; column < columns; ++column)
      sum(column) = float(total[column]);
  }
}

void execute(Step &s, const PendingProduct &product) {
  std::vector<float> &sums = s.warp.sums.at(product.in->operands[0].parts[0].index);
  bool isBf16 = product.in->opcode.find("bf16") != std::string::npos;
  isBf16 ? multiply<fromBf16>(s, product, sums) : multiply<fromF16>(s, product, sums);
}

/// The machine reads operands once for the whole warpgroup: the instruction and its descriptors must be the same in
/// all.
void agree(Step &s, const PendingProduct &product) {
  GroupProducts &group = s.block.groups[s.warp.id / 4];
  uint64_t number = s.warp.numProducts++ - group.first;
  if (number == group.products.size())
    group.products.push_back({product, 0});
  auto &[first, count] = group.products[number];
  if (first.in != product.in || first.left != product.left || first.right != product.right ||
      first.accumulates != product.accumulates)
    s.fail("differs from what another warp of the warpgroup multiplies");
  if (++count == 4) {
    group.products.pop_front();
    ++group.first;
  }
}

//===----------------------------------------------------------------------===//
// What belongs to products under way (9.7.15.7.1)
//===----------------------------------------------------------------------===//

/// Of each register: whether a product under way adds to it or has it as A.
enum Lent : uint8_t { kFree, kSum, kLeft };

void lend(Warp &warp, const PendingProduct &product) {
  auto mark = [&](const Operand &operand, Lent as) {
    for (const Operand &part : operand.parts)
      if (part.kind == Operand::Register)
        warp.lent[part.index] = as;
  };
  warp.lent.resize(warp.registers.size() / kLanes, kFree);
  mark(product.in->operands[0], kSum);
  mark(product.in->operands[1], kLeft);
}

template <typename F> void forProducts(const Warp &warp, F f) {
  for (auto &group : warp.productGroups)
    for (const PendingProduct &product : group)
      f(product);
  for (const PendingProduct &product : warp.products)
    f(product);
}

void checkFree(Step &s, const Operand &operand, Lent mayBe) {
  if (operand.kind == Operand::Register && s.warp.lent[operand.index] != kFree && s.warp.lent[operand.index] != mayBe)
    s.fail("uses a register of a product that was not waited for");
  for (const Operand &part : operand.parts)
    checkFree(s, part, mayBe);
}

/// wgmma.mma_async D, A or its descriptor, B's descriptor, scale-d, 1, 1, [transpose A,] transpose B. In
/// lazy mode it happens at the wait: sums are NaN until then, and registers of A are read then.
void multiplyAsync(Step &s) {
  wholeWarp(s);
  if (!s.warp.isFenced)
    s.fail("has no wgmma.fence before it that orders its registers");
  const std::vector<Operand> &parts = s.operand(0).parts;
  size_t shape = s.in.opcode.find(".m64n") + 5;
  if (2 * parts.size() != size_t(atoi(s.in.opcode.c_str() + shape)))
    s.fail("has another number of registers than its shape says");
  if (s.read(s.operand(4), 0) != 1 || s.read(s.operand(5), 0) != 1)
    s.fail("scales its operands by another number than 1");
  bool inRegisters = s.operand(1).kind == Operand::Vector;
  if (s.numOperands() != (inRegisters ? 7 : 8))
    s.fail("has another number of operands than the interpreter knows");
  PendingProduct product{&s.in, inRegisters ? 0 : s.read(s.operand(1), 0), s.read(s.operand(2), 0),
                         bool(s.read(s.operand(3), 0) & 1)};
  agree(s, product);
  auto [sums, isNew] = s.warp.sums.try_emplace(parts[0].index);
  if (isNew)
    for (const Operand &part : parts)
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        sums->second.push_back(s.as<float>(part, lane));
        s.write(part, lane, NAN);
      }
  if (sums->second.size() != parts.size() * kLanes)
    s.fail("adds to some of the sums of another product");
  if (!s.launch.options.lazy)
    execute(s, product);
  s.warp.products.push_back(product);
  lend(s.warp, product);
}

void fence(Step &s) {
  wholeWarp(s);
  s.warp.isFenced = true;
}

void commit(Step &s) {
  wholeWarp(s);
  s.warp.productGroups.push_back(std::move(s.warp.products));
  s.warp.products.clear();
}

void wait(Step &s) {
  wholeWarp(s);
  auto &groups = s.warp.productGroups;
  while (groups.size() > s.as<uint32_t>(s.operand(0), 0)) {
    std::vector<PendingProduct> group = std::move(groups.front());
    groups.erase(groups.begin());
    for (const PendingProduct &product : group) {
      if (s.launch.options.lazy)
        execute(s, product);
      const std::vector<Operand> &parts = product.in->operands[0].parts;
      auto sums = s.warp.sums.find(parts[0].index);
      for (size_t j = 0; j < parts.size(); ++j)
        for (unsigned lane = 0; lane < kLanes; ++lane)
          s.write(parts[j], lane, sums->second[j * kLanes + lane]);
    }
  }
  // What belongs to no product under way is the program's again.
  std::map<uint32_t, std::vector<float>> rest;
  s.warp.lent.clear();
  forProducts(s.warp, [&](const PendingProduct &product) {
    uint32_t first = product.in->operands[0].parts[0].index;
    rest[first] = s.warp.sums.at(first);
    lend(s.warp, product);
  });
  s.warp.sums = std::move(rest);
  s.warp.isFenced = false;
}

/// setmaxnreg: registers are without number here, but what may be asked for is not, and what a block has.
template <bool IsMore> void setRegisters(Step &s) {
  wholeWarp(s);
  auto count = uint32_t(s.read(s.operand(0), 0));
  const Kernel &kernel = s.launch.kernel;
  uint32_t &own = s.warp.registersPerThread;
  if (count < 24 || count > 256 || count % 8)
    s.fail("asks for " + std::to_string(count) + " registers");
  if (!own || !(kernel.maxRegisters || kernel.minBlocks))
    s.fail("is ignored by ptxas: neither .maxnreg nor .minnctapersm with a number of threads says what it has to begin "
           "with");
  if (IsMore ? count < own : count > own)
    s.fail("asks for " + std::to_string(count) + " registers of " + std::to_string(own));
  if (!IsMore) {
    s.block.spareRegisters += (own - count) * kLanes;
    s.wakes = true;
  } else if (uint32_t more = (count - own) * kLanes; more > s.block.spareRegisters) {
    s.warp.wantedRegisters = more;
    s.warp.moveTo(s.mask, uint32_t(&s.in - kernel.code.data())); // once more when it is woken
    s.blocked = true;
    return;
  } else {
    s.block.spareRegisters -= more;
  }
  own = count;
}

} // namespace

void checkLent(Step &s) {
  bool isProduct = s.in.execute == multiplyAsync;
  for (size_t n = 0; n < s.numOperands(); ++n)
    checkFree(s, s.operand(n), isProduct && n == 0 ? kSum : isProduct && n == 1 ? kLeft : kFree);
}

void checkUnread(Step &s, uint64_t address, uint32_t bytes) {
  for (const Warp &warp : s.block.warps)
    forProducts(warp, [&](const PendingProduct &product) {
      auto check = [&](uint64_t piece, unsigned, unsigned) {
        if (piece < address + bytes && address < piece + kPiece)
          s.fail("overwrites shared memory that a product of warp " + std::to_string(warp.id) +
                 " reads, which was not waited for, at " + std::to_string(piece));
      };
      auto look = [&](uint64_t bits, bool transposed, unsigned first, unsigned count) {
        Descriptor at = readDescriptor(s, bits);
        if (mayReach(at, transposed, first + count, address, bytes))
          forPieces(at, transposed, first, count, check);
      };
      const Operands of = operandsOf(s, product, warp);
      if (!of.inRegisters)
        look(product.left, of.transposesA, of.firstRow, kRows);
      look(product.right, of.transposesB, 0, of.columns);
    });
}

void addWarpgroupInstructions(Table &table) {
  for (unsigned n = 8; n <= 256; n += 8)
    for (std::string type : {".bf16.bf16", ".f16.f16"})
      table["wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32" + type] = {multiplyAsync, true};
  table["wgmma.fence.sync.aligned"] = {fence, true};
  table["wgmma.commit_group.sync.aligned"] = {commit, true};
  table["wgmma.wait_group.sync.aligned"] = {wait, true};
  table["setmaxnreg.inc.sync.aligned.u32"] = {setRegisters<true>, true};
  table["setmaxnreg.dec.sync.aligned.u32"] = {setRegisters<false>, true};
}

} // namespace ptx
