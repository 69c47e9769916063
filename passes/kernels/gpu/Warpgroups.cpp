#include "passes/kernels/gpu/Warpgroups.h"

#include "dialects/attn/DeviceOps.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

constexpr int64_t kPattern = 1024; // bytes after which the exchange of pieces repeats

Value Warpgroups::launch(Value blocks, int64_t threads, int64_t bytes) {
  OpBuilder &b = k.b;
  // The memory begins anywhere.
  Value size = arith::ConstantIntOp::create(b, k.loc, bytes + kPattern, 32);
  k.launch(blocks, threads, {}, size);
  Operation *launch = b.getInsertionBlock()->getParentOp();
  launch->setAttr(AttnDialect::kOnlyExactAttr, b.getI64IntegerAttr(kArch));
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface(), space);
  memory = gpu::DynamicSharedMemoryOp::create(b, k.loc, type);
  begin = memref::ExtractAlignedPointerAsIndexOp::create(b, k.loc, memory);
  return k.mul(k.div(k.add(begin, kPattern - 1), k.index(kPattern)), kPattern);
}

Value Warpgroups::asFloats(Value place, int64_t elements) {
  auto space = cast<MemRefType>(memory.getType()).getMemorySpace();
  auto type = MemRefType::get({elements}, k.b.getF32Type(), MemRefLayoutAttrInterface(), space);
  return memref::ViewOp::create(k.b, k.loc, type, memory, k.sub(place, begin), ValueRange());
}

Values Warpgroups::piece(ArrayRef<Value> eight, Precision precision) {
  Values words;
  for (ArrayRef<Value> four : {eight.take_front(4), eight.drop_front(4)})
    for (Value pair : k.packed(four, precision))
      words.push_back(k.bitcast(pair, k.b.getI32Type()));
  return words;
}

Value Warpgroups::pieceAt(Value row, Value piece) {
  Value place = arith::XOrIOp::create(k.b, k.loc, piece, k.rem(row, k.index(8)));
  return k.add(k.mul(row, 8), place);
}

void Warpgroups::storePiece(ArrayRef<Value> words, Value place) {
  constexpr unsigned kShared = 3, kBytes = 16;
  Value vector = vector::FromElementsOp::create(k.b, k.loc, VectorType::get({4}, k.b.getI32Type()), words);
  Value pointer =
      LLVM::IntToPtrOp::create(k.b, k.loc, LLVM::LLVMPointerType::get(k.b.getContext(), kShared), bits(place));
  LLVM::StoreOp::create(k.b, k.loc, vector, pointer, kBytes);
}

Value Warpgroups::bits(Value index) { return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), index); }

Values Warpgroups::assembly(const Twine &text, StringRef constraints, ValueRange operands, TypeRange results) {
  OpBuilder &b = k.b;
  Type type;
  if (results.size() == 1)
    type = results.front();
  else if (!results.empty())
    type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(results));
  auto op = LLVM::InlineAsmOp::create(b, k.loc, type ? TypeRange(type) : TypeRange(), operands, text.str(), constraints,
                                      /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                                      LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() == 1)
    return {op.getRes()};
  Values values;
  for (size_t n = 0; n < results.size(); ++n)
    values.push_back(LLVM::ExtractValueOp::create(b, k.loc, op.getRes(), n));
  return values;
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

void Warpgroups::initialize(Value barrier, int64_t arrivals) {
  assembly("mbarrier.init.shared::cta.b64 [$0], " + Twine(arrivals) + ";", "l,~{memory}", bits(barrier));
}
void Warpgroups::publishBarriers() { assembly("fence.mbarrier_init.release.cluster;", "~{memory}", {}); }
void Warpgroups::arrive(Value barrier) {
  assembly("mbarrier.arrive.shared::cta.b64 _, [$0];", "l,~{memory}", bits(barrier));
}
void Warpgroups::arriveExpecting(Value barrier, int64_t bytes) {
  assembly("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], " + Twine(bytes) + ";", "l,~{memory}", bits(barrier));
}
void Warpgroups::wait(Value barrier, Value parity) {
  Value word = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), parity);
  assembly("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n@p bra DONE;\n"
           "bra WAIT;\nDONE:\n}",
           "l,r,~{memory}", {bits(barrier), word});
}
void Warpgroups::copy(Value place, Value flat, Value offset, int64_t bytes, Value barrier) {
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(k.b, k.loc, flat);
  Value source = k.add(base, k.mul(offset, 4));
  assembly("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], " + Twine(bytes) + ", [$2];",
           "l,l,l,~{memory}", {bits(place), bits(source), bits(barrier)});
}

Value Warpgroups::mapTiles(Value buffer, ArrayRef<int64_t> tile) {
  constexpr int64_t kWords = 16;
  return MapTilesOp::create(k.b, k.loc, VectorType::get({kWords}, k.b.getI64Type()), buffer, tile);
}
void Warpgroups::copyTile(Value place, Value map, ArrayRef<Value> at, Value barrier) {
  Values operands = {bits(place), TilesAddressOp::create(k.b, k.loc, k.b.getI64Type(), map), bits(barrier)};
  std::string constraints = "l,l,l", coordinates;
  for (Value index : llvm::reverse(at)) { // from the innermost one on
    coordinates += (coordinates.empty() ? "$" : ", $") + std::to_string(operands.size());
    operands.push_back(arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), index));
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
void Warpgroups::barrier(Value number, int64_t threads, bool waits) {
  Value word = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), number);
  assembly((waits ? "bar.sync $0, " : "bar.arrive $0, ") + Twine(threads) + ";", "r,~{memory}", word);
}
Value Warpgroups::sameInWarp(Value x) {
  OpBuilder &b = k.b;
  Value word = arith::IndexCastOp::create(b, k.loc, b.getI32Type(), x);
  auto first = gpu::ShuffleOp::create(b, k.loc, word, 0, 32, gpu::ShuffleMode::IDX);
  return arith::IndexCastOp::create(b, k.loc, b.getIndexType(), first.getShuffleResult());
}
Value Warpgroups::fromHere(Value x) {
  Value same = assembly("mov.b64 $0, $1;", "=l,l", bits(x), k.b.getI64Type())[0];
  return arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), same);
}
void Warpgroups::setRegisters(int64_t count, bool isMore) {
  assembly("setmaxnreg." + Twine(isMore ? "inc" : "dec") + ".sync.aligned.u32 " + Twine(count) + ";", "~{memory}", {});
}

Warpgroups::Matrix Warpgroups::matrix(Value place, int64_t leading, int64_t stride) {
  Value word = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), place);
  Value bits14 = arith::ShRUIOp::create(k.b, k.loc, word, arith::ConstantIntOp::create(k.b, k.loc, 4, 32));
  Value low = arith::ConstantIntOp::create(k.b, k.loc, leading / 16 << 16, 32);
  return {arith::OrIOp::create(k.b, k.loc, bits14, low), stride};
}

Value Warpgroups::descriptor(const Matrix &matrix, int64_t bytes) {
  constexpr int64_t kExchanged = int64_t(1) << 62; // 128 bytes
  OpBuilder &b = k.b;
  // Shared memory has 18 bits of places: a sum stays within its 14.
  Value low = arith::AddIOp::create(b, k.loc, matrix.low, arith::ConstantIntOp::create(b, k.loc, bytes / 16, 32));
  Value high = arith::ConstantIntOp::create(b, k.loc, kExchanged | matrix.stride / 16 << 32, 64);
  return arith::OrIOp::create(b, k.loc, arith::ExtUIOp::create(b, k.loc, b.getI64Type(), low), high);
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

Values Warpgroups::startShared(ValueRange sums, const Panels &left, const Panels &right, int64_t columns, int64_t depth,
                               Precision precision) {
  int64_t count = columns / 2, at = count + sums.size();
  std::string text = kBegin, constraints = sumConstraints(count, !sums.empty());
  Values operands(sums);
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

Values Warpgroups::startProducts(ValueRange sums, ValueRange left, Value right, int64_t depth, Precision precision) {
  int64_t count = sums.size(), columns = 2 * count, steps = depth / 16;
  std::string text = kBegin, constraints = sumConstraints(count, true);
  Values operands(sums);
  // The next 64 columns stand in the next panel.
  Matrix b = matrix(right, depth * kRowBytes, 8 * kRowBytes);
  int64_t at = 2 * count;
  for (int64_t step = 0; step < steps; ++step, at += 5) {
    for (Value word : left.slice(4 * step, 4))
      operands.push_back(k.bitcast(word, k.b.getI32Type()));
    operands.push_back(descriptor(b, step * 16 * kRowBytes));
    text += opcode(columns, precision) + registers(0, count) + ", " + registers(at, 4) + ", $" +
            std::to_string(at + 4) + ", all, 1, 1, 1;\n";
    constraints += ",r,r,r,r,l";
  }
  return assembly(text + kEnd, constraints + ",~{memory}", operands, SmallVector<Type>(count, k.b.getF32Type()));
}

Values Warpgroups::finish(ValueRange values, int64_t underWay) {
  // Tied to the values, so that no use of one comes before the wait.
  int64_t count = values.size();
  return assembly("wgmma.wait_group.sync.aligned " + Twine(underWay) + ";", sumConstraints(count, true) + ",~{memory}",
                  values, SmallVector<Type>(count, k.b.getF32Type()));
}

} // namespace attn
