#ifndef PASSES_KERNELS_CPU_TILEREGISTERS_H
#define PASSES_KERNELS_CPU_TILEREGISTERS_H

#include "builders/Code.h"

namespace attn {

/// The eight tile registers of AMX, each of 16 rows of 64 bytes: four sums, two by two, of two tiles of rows by two of
/// columns. What is done to one is done by a number in the instruction, so that none is ever spilled.
class TileRegisters {
public:
  static constexpr int64_t kRows = 16, kBytes = 64;
  /// Rows and columns of the four sums.
  static constexpr int64_t kBlock = 2 * kRows;

  static constexpr int64_t sum(int64_t i, int64_t j) { return 2 * i + j; }
  static constexpr int64_t rows(int64_t i) { return 4 + i; }
  static constexpr int64_t columns(int64_t j) { return 6 + j; }

  explicit TileRegisters(const Code &code) : k(code), config(k.scratch({64}, k.b.getI8Type())) {}

  /// Gives the upper sums and their rows `top` rows and the lower ones `bottom`. A product takes in `depth` bytes: the
  /// width of rows, and four times as many as columns have rows. All are zero then.
  void configure(const Index &top, const Index &bottom, int64_t depth = kBytes);
  void release() { call("llvm.x86.tilerelease", {}); }
  void zero(int64_t number) { call("llvm.x86.tilezero", {constant(number)}); }
  /// Rows of 64 bytes, `stride` bytes apart.
  void load(int64_t number, const Index &address, const Index &stride) {
    move("llvm.x86.tileloadd64", number, address, stride);
  }
  /// The same of what is not read again soon: it takes no place in the first-level cache from what is.
  void loadOnce(int64_t number, const Index &address, const Index &stride) {
    move("llvm.x86.tileloaddt164", number, address, stride);
  }
  void store(int64_t number, const Index &address, const Index &stride) {
    move("llvm.x86.tilestored64", number, address, stride);
  }
  /// Adds what `instruction` makes of rows i and columns j to their sum.
  void multiply(llvm::StringRef instruction, int64_t i, int64_t j) {
    multiply(instruction, sum(i, j), rows(i), columns(j));
  }
  /// The same of any three registers that fit each other.
  void multiply(llvm::StringRef instruction, int64_t to, int64_t left, int64_t right) {
    call(instruction, {constant(to), constant(left), constant(right)});
  }

private:
  mlir::Value constant(int64_t number) { return k.number(k.b.getI8Type(), number); }
  mlir::Value pointer(const Index &address);
  void call(llvm::StringRef name, llvm::ArrayRef<mlir::Value> operands);
  void move(llvm::StringRef name, int64_t number, const Index &address, const Index &stride);

  Code k;
  Buffer config;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_TILEREGISTERS_H
