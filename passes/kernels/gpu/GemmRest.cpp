#include "passes/kernels/gpu/Gemm.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace attn {

SmallVector<Operation *> opsBehind(Block &epilogue, Value made) {
  llvm::SmallPtrSet<Value, 16> wanted = {epilogue.getTerminator()->getOperand(0)};
  SmallVector<Operation *> ops;
  for (Operation &op : llvm::reverse(epilogue.without_terminator()))
    if (wanted.contains(op.getResult(0)) && op.getResult(0) != made) {
      ops.push_back(&op);
      wanted.insert(op.operand_begin(), op.operand_end());
    }
  std::reverse(ops.begin(), ops.end());
  return ops;
}

std::string nameOfGpuGemmRest(const GpuGemmSpec &spec) {
  GpuGemmSpec key = spec;
  key.hasRoundedFactor = false; // of the product alone
  return key.symbol() + "_rest";
}

func::FuncOp buildGpuGemmRest(OpBuilder &builder, Location loc, const GpuGemmSpec &spec, Value made) {
  KernelFunction f(builder, loc, nameOfGpuGemmRest(spec));
  SmallVector<Operation *> ops = opsBehind(*spec.epilogue, made);
  auto isRead = [&](Value value) {
    return llvm::any_of(ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), value); });
  };
  SmallVector<Value> inputs, arguments;
  SmallVector<AffineMap> maps;
  for (unsigned n = 0; n < spec.operands.size(); ++n) {
    Value buffer = f.buffer(spec.operands[n]).value();
    Value argument = spec.getOperand(n);
    if (!isRead(argument))
      continue;
    inputs.push_back(buffer), arguments.push_back(argument), maps.push_back(spec.operandMaps[n]);
  }
  Value result = f.buffer(spec.result).value();
  maps.push_back(builder.getMultiDimIdentityMap(spec.result.getRank()));

  IRMapping map;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (operand.getParentBlock() != spec.epilogue && !map.contains(operand))
        map.map(operand, builder.clone(*operand.getDefiningOp())->getResult(0)); // a constant
  SmallVector<utils::IteratorType> loops(spec.result.getRank(), utils::IteratorType::parallel);
  linalg::GenericOp::create(builder, loc, TypeRange(), inputs, result, maps, loops,
                            [&](OpBuilder &b, Location loc, ValueRange values) {
                              map.map(arguments, values.drop_back());
                              Value start = values.back();
                              if (start.getType() != made.getType())
                                start = arith::ExtFOp::create(b, loc, made.getType(), start);
                              map.map(made, start);
                              for (Operation *op : ops)
                                b.clone(*op, map);
                              Value end = spec.epilogue->getTerminator()->getOperand(0);
                              linalg::YieldOp::create(b, loc, map.lookup(end));
                            });
  return f.function;
}

} // namespace attn
