#include "passes/kernels/cpu/TileRegisters.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace attn {

void TileRegisters::configure(const Index &top, const Index &bottom, int64_t depth) {
  SmallVector<int8_t> bytes(64, 0);
  bytes[0] = 1; // the palette of 8 tiles of 1 KB
  for (int64_t number = 0; number < 8; ++number) {
    bytes[16 + 2 * number] = kBytes;
    bytes[48 + number] = kRows;
  }
  for (int64_t i = 0; i < 2; ++i) {
    bytes[16 + 2 * rows(i)] = depth;
    bytes[48 + columns(i)] = depth / 4;
  }
  auto type = VectorType::get({64}, k.b.getI8Type());
  Value all = arith::ConstantOp::create(k.b, k.loc, DenseElementsAttr::get(type, ArrayRef<int8_t>(bytes)));
  config.setVector(k.asVec(all), 0);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t number : {sum(i, 0), sum(i, 1), rows(i)})
      config.set(toNum(i == 0 ? top : bottom, k.b.getI8Type()), 48 + number);
  call("llvm.x86.ldtilecfg", {pointer(config.address())});
}

Value TileRegisters::pointer(const Index &address) {
  return LLVM::IntToPtrOp::create(k.b, k.loc, LLVM::LLVMPointerType::get(k.b.getContext()),
                                  toNum(address, k.b.getI64Type()).value());
}

void TileRegisters::call(StringRef name, ArrayRef<Value> operands) {
  LLVM::CallIntrinsicOp::create(k.b, k.loc, k.b.getStringAttr(name), operands);
}

void TileRegisters::move(StringRef name, int64_t number, const Index &address, const Index &stride) {
  call(name, {constant(number), pointer(address), toNum(stride, k.b.getI64Type())});
}

} // namespace attn
