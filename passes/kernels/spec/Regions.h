#ifndef PASSES_KERNELS_SPEC_REGIONS_H
#define PASSES_KERNELS_SPEC_REGIONS_H

#include "mlir/IR/Block.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include <optional>
#include <string>

namespace attn {

// What is asked of the scalar ops that a kernel carries.

/// The dimension that an op asks for, if it is an index op (`attn.index`, `linalg.index`).
std::optional<int64_t> getIndexDim(mlir::Operation *op);
/// The value of a scalar constant, wherever it stands; null for anything else.
mlir::TypedAttr getScalarConstant(mlir::Value value);

/// True if every op of `block` maps to vectors element by element, is a
/// constant or an index op, no value but constants comes from outside, and one
/// scalar is yielded. Otherwise `reason`, if given, tells what stands in the way.
bool canVectorizeBlock(mlir::Block &block, std::string *reason = nullptr);

/// About how many instructions `block` takes, for a choice between writing it once per register of a tile, which takes
/// long to compile, and once in a loop over the tile, whose elements go through memory. 0 for null.
int64_t getCost(mlir::Block *block);

/// The generic form of `block` without locations and value names, constants
/// from outside included: equal for blocks that compute the same thing by the
/// same ops. Part of the key of a kernel that carries the block.
std::string blockSignature(mlir::Block &block);

/// A size as it stands in the names of kernels: x where the run knows it.
std::string sizeText(int64_t size);

/// The sizes of a buffer so, with x between them; n where the run knows one.
std::string shapeText(mlir::MemRefType type);

/// Says in `reason`, if given, why something cannot be built; false.
bool fail(std::string *reason, const llvm::Twine &text);

/// How an epilogue reads an operand, and the buffer that it comes in.
enum class EpilogueOperand {
  Scalar,    ///< memref<f32>: one value
  RowVector, ///< memref<Nxf32>: by column, as a bias
  Column,    ///< memref<Mxf32>: by row
  Full       ///< memref<MxNxf32>: at the element's position, as a residual
};

/// A block of scalar ops that makes an element of a result of a sum of products.
struct SumBlock {
  /// Yields the element; null: it is the sum itself. Argument number `accumulator` is the sum, the others in order are
  /// operands. Arguments beyond these (the outs of a linalg.generic) must have no uses. Not owned.
  mlir::Block *epilogue = nullptr;
  unsigned accumulator = 0;

  /// The arguments that are the sum and operand `number`.
  mlir::BlockArgument getSum() const { return epilogue->getArgument(accumulator); }
  mlir::BlockArgument getOperand(unsigned number) const {
    return epilogue->getArgument(number + (number >= accumulator));
  }
  /// All arguments, of `operands` and `sum`, which stands for those without uses, too.
  llvm::SmallVector<mlir::Value> getArguments(llvm::ArrayRef<mlir::Value> operands, mlir::Value sum) const;
};

/// What a kernel makes of the sums of a product before it stores them.
struct EpilogueSpec : SumBlock {
  llvm::SmallVector<EpilogueOperand> operands; ///< how they are read

  /// The shape of operand `number` of a product of `m` rows and `n` columns.
  llvm::SmallVector<int64_t> getOperandShape(unsigned number, int64_t m, int64_t n) const;
  /// What it adds to the name of a kernel: "_e" and a hash, or nothing.
  std::string getEpilogueSuffix() const;
  /// Whether it maps to vectors, and takes the sum and the operands alone.
  bool canBuildEpilogue(std::string *reason) const;
};

} // namespace attn

#endif // PASSES_KERNELS_SPEC_REGIONS_H
