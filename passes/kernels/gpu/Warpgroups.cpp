#include "passes/kernels/gpu/Warpgroups.h"

#include "dialects/attn/DeviceOps.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

constexpr int64_t kPattern = 1024; // bytes after which the exchange of pieces repeats

Index Warpgroups::launch(const Index &blocks, int64_t threads, int64_t bytes) {
  OpBuilder &b = k.b;
  // The memory begins anywhere.
  k.launch(blocks, threads, {}, k.i32(bytes + kPattern));
  Operation *launch = b.getInsertionBlock()->getParentOp();
  launch->setAttr(AttnDialect::kOnlyExactAttr, b.getI64IntegerAttr(kArch));
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface(), space);
  memory = k.asBuffer(gpu::DynamicSharedMemoryOp::create(b, k.loc, type));
  begin = memory.address();
  return (begin + (kPattern - 1)) / kPattern * kPattern;
}

Buffer Warpgroups::asFloats(const Index &place, int64_t elements) {
  auto type =
      MemRefType::get({elements}, k.b.getF32Type(), MemRefLayoutAttrInterface(), memory.memref().getMemorySpace());
  return memory.with(memref::ViewOp::create(k.b, k.loc, type, memory, place - begin, ValueRange()));
}

Nums Warpgroups::piece(ArrayRef<Num> eight, Precision precision) {
  Nums words;
  for (ArrayRef<Num> four : {eight.take_front(4), eight.drop_front(4)})
    for (const Num &pair : k.packed(four, precision))
      words.push_back(k.asWord(pair));
  return words;
}

Index Warpgroups::pieceAt(const Index &row, const Index &piece) {
  Index place = piece ^ (row % 8);
  return row * 8 + place;
}

void Warpgroups::storePiece(ArrayRef<Num> words, const Index &place) {
  constexpr unsigned kShared = 3, kBytes = 16;
  auto type = VectorType::get({4}, k.b.getI32Type());
  Value vector = vector::FromElementsOp::create(k.b, k.loc, type, ThreadCode::values(words));
  auto inShared = LLVM::LLVMPointerType::get(k.b.getContext(), kShared);
  Value pointer = LLVM::IntToPtrOp::create(k.b, k.loc, inShared, bits(place).value());
  LLVM::StoreOp::create(k.b, k.loc, vector, pointer, kBytes);
}

Nums Warpgroups::assembly(const Twine &text, StringRef constraints, ArrayRef<Num> operands, TypeRange results) {
  OpBuilder &b = k.b;
  Type type;
  if (results.size() == 1)
    type = results.front();
  else if (!results.empty())
    type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(results));
  auto op = LLVM::InlineAsmOp::create(b, k.loc, type ? TypeRange(type) : TypeRange(), ThreadCode::values(operands),
                                      text.str(), constraints, /*has_side_effects=*/true, /*is_align_stack=*/false,
                                      LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() == 1)
    return {k.asNum(op.getRes())};
  Nums values;
  for (size_t n = 0; n < results.size(); ++n)
    values.push_back(k.asNum(LLVM::ExtractValueOp::create(b, k.loc, op.getRes(), n)));
  return values;
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

void Warpgroups::initialize(const Index &barrier, int64_t arrivals) {
  assembly("mbarrier.init.shared::cta.b64 [$0], " + Twine(arrivals) + ";", "l,~{memory}", bits(barrier));
}
void Warpgroups::publishBarriers() { assembly("fence.mbarrier_init.release.cluster;", "~{memory}", {}); }
void Warpgroups::arrive(const Index &barrier) {
  assembly("mbarrier.arrive.shared::cta.b64 _, [$0];", "l,~{memory}", bits(barrier));
}
void Warpgroups::arriveExpecting(const Index &barrier, int64_t bytes) {
  assembly("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], " + Twine(bytes) + ";", "l,~{memory}", bits(barrier));
}
void Warpgroups::wait(const Index &barrier, const Index &parity) {
  Num phase = word(parity);
  assembly("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n@p bra DONE;\n"
           "bra WAIT;\nDONE:\n}",
           "l,r,~{memory}", {bits(barrier), phase});
}
void Warpgroups::copy(const Index &place, const Buffer &flat, const Index &offset, int64_t bytes,
                      const Index &barrier) {
  Index source = flat.address() + offset * 4;
  assembly("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], " + Twine(bytes) + ", [$2];",
           "l,l,l,~{memory}", {bits(place), bits(source), bits(barrier)});
}

Value Warpgroups::mapTiles(Value buffer, ArrayRef<int64_t> tile) {
  constexpr int64_t kWords = 16;
  return MapTilesOp::create(k.b, k.loc, VectorType::get({kWords}, k.b.getI64Type()), buffer, tile);
}
void Warpgroups::copyTile(const Index &place, Value map, ArrayRef<Index> at, const Index &barrier) {
  Nums operands = {bits(place), k.asNum(TilesAddressOp::create(k.b, k.loc, k.b.getI64Type(), map)), bits(barrier)};
  std::string constraints = "l,l,l", coordinates;
  for (const Index &index : llvm::reverse(at)) { // from the innermost one on
    coordinates += (coordinates.empty() ? "$" : ", $") + std::to_string(operands.size());
    operands.push_back(word(index));
    constraints += ",r";
  }
  assembly("cp.async.bulk.tensor." + Twine(at.size()) +
               "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {" + coordinates + "}], [$2];",
           constraints + ",~{memory}", operands);
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

void Warpgroups::publishStores() { assembly("fence.proxy.async.shared::cta;", "~{memory}", {}); }
void Warpgroups::barrier(const Index &number, int64_t threads, bool waits) {
  assembly((waits ? "bar.sync $0, " : "bar.arrive $0, ") + Twine(threads) + ";", "r,~{memory}", word(number));
}
Index Warpgroups::sameInWarp(const Index &x) {
  auto first = gpu::ShuffleOp::create(k.b, k.loc, word(x), 0, 32, gpu::ShuffleMode::IDX);
  return toIndex(k.asNum(first.getShuffleResult()));
}
Index Warpgroups::fromHere(const Index &x) {
  return toIndex(assembly("mov.b64 $0, $1;", "=l,l", bits(x), k.b.getI64Type())[0]);
}
void Warpgroups::setRegisters(int64_t count, bool isMore) {
  assembly("setmaxnreg." + Twine(isMore ? "inc" : "dec") + ".sync.aligned.u32 " + Twine(count) + ";", "~{memory}", {});
}

Warpgroups::Matrix Warpgroups::matrix(const Index &place, int64_t leading, int64_t stride) {
  Num bits14 = word(place) >> 4;
  return {bits14 | k.i32(leading / 16 << 16), stride};
}

Num Warpgroups::descriptor(const Matrix &matrix, int64_t bytes) {
  constexpr int64_t kExchanged = int64_t(1) << 62; // 128 bytes
  // Shared memory has 18 bits of places: a sum stays within its 14.
  Num low = matrix.low + bytes / 16;
  return convertUnsigned(low, k.b.getI64Type()) | k.i64(kExchanged | matrix.stride / 16 << 32);
}

/// "{$from, $from+1, ...}".
static std::string registers(int64_t from, int64_t count) {
  std::string text = "{";
  for (int64_t n = 0; n < count; ++n)
    text += (n ? ", $" : "$") + std::to_string(from + n);
  return text + "}";
}

static std::string opcode(int64_t columns, Precision precision) {
  StringRef type = precision == Precision::f16 ? "f16" : "bf16";
  return ("wgmma.mma_async.sync.aligned.m64n" + Twine(columns) + "k16.f32." + type + "." + type + " ").str();
}

static constexpr const char *kBegin = "{\n.reg .pred none, all;\nsetp.ne.b32 none, 0, 0;\nsetp.ne.b32 all, 1, 0;\n"
                                      "wgmma.fence.sync.aligned;\n";
static constexpr const char *kEnd = "wgmma.commit_group.sync.aligned;\n}";

/// Constraints of so many sums, and of as many operands that they begin with.
static std::string sumConstraints(int64_t count, bool isTied) {
  std::string text, ties;
  for (int64_t n = 0; n < count; ++n)
    text += n ? ",=f" : "=f", ties += "," + std::to_string(n);
  return isTied ? text + ties : text;
}

Warpgroups::Matrix Warpgroups::matrix(const Panels &panels) {
  // Across, the next 64 rows (columns) stand in the next panel.
  return matrix(panels.place, panels.isAcross ? panels.rows * kRowBytes : 16, 8 * kRowBytes);
}

/// Where 16 of the sum begin: across they are rows, else 32 bytes of a row, and the exchange goes by the address.
int64_t Warpgroups::bytesTo(const Panels &panels, int64_t depth) {
  return panels.isAcross ? depth * kRowBytes : depth / kPanel * panels.rows * kRowBytes + depth % kPanel * 2;
}

Nums Warpgroups::startShared(ArrayRef<Num> sums, const Panels &left, const Panels &right, int64_t columns,
                             int64_t depth, Precision precision) {
  int64_t count = columns / 2, at = count + sums.size();
  std::string text = kBegin, constraints = sumConstraints(count, !sums.empty());
  Nums operands(sums);
  Matrix a = matrix(left), b = matrix(right);
  for (int64_t from = 0; from < depth; from += 16, at += 2) {
    operands.push_back(descriptor(a, bytesTo(left, from)));
    operands.push_back(descriptor(b, bytesTo(right, from)));
    text += opcode(columns, precision) + registers(0, count) + ", $" + std::to_string(at) + ", $" +
            std::to_string(at + 1) + ", " + (from || !sums.empty() ? "all" : "none") + ", 1, 1, " +
            (left.isAcross ? "1, " : "0, ") + (right.isAcross ? "1" : "0") + ";\n";
    constraints += ",l,l";
  }
  return assembly(text + kEnd, constraints + ",~{memory}", operands, SmallVector<Type>(count, k.b.getF32Type()));
}

Nums Warpgroups::startProducts(ArrayRef<Num> sums, ArrayRef<Num> left, const Index &right, int64_t depth,
                               Precision precision) {
  int64_t count = sums.size(), columns = 2 * count, steps = depth / 16;
  std::string text = kBegin, constraints = sumConstraints(count, true);
  Nums operands(sums);
  // The next 64 columns stand in the next panel.
  Matrix b = matrix(right, depth * kRowBytes, 8 * kRowBytes);
  int64_t at = 2 * count;
  for (int64_t step = 0; step < steps; ++step, at += 5) {
    for (const Num &word : left.slice(4 * step, 4))
      operands.push_back(k.asWord(word));
    operands.push_back(descriptor(b, step * 16 * kRowBytes));
    text += opcode(columns, precision) + registers(0, count) + ", " + registers(at, 4) + ", $" +
            std::to_string(at + 4) + ", all, 1, 1, 1;\n";
    constraints += ",r,r,r,r,l";
  }
  return assembly(text + kEnd, constraints + ",~{memory}", operands, SmallVector<Type>(count, k.b.getF32Type()));
}

Nums Warpgroups::finish(ArrayRef<Num> values, int64_t underWay) {
  // Tied to the values, so that no use of one comes before the wait.
  int64_t count = values.size();
  return assembly("wgmma.wait_group.sync.aligned " + Twine(underWay) + ";", sumConstraints(count, true) + ",~{memory}",
                  values, SmallVector<Type>(count, k.b.getF32Type()));
}

} // namespace attn
