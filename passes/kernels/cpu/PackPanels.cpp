#include "passes/kernels/cpu/PackPanels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

std::string PackPanelsSpec::symbol() const {
  auto size = [](int64_t number) { return ShapedType::isDynamic(number) ? "x" : std::to_string(number); };
  return llvm::formatv("pack_panels_f32_k{0}_n{1}_w{2}x{3}", size(k), size(n), width, lanes);
}

func::FuncOp buildPackPanels(OpBuilder &b, Location loc, const PackPanelsSpec &spec) {
  Type f32 = b.getF32Type();
  auto vectorType = VectorType::get({spec.lanes}, f32), maskType = VectorType::get({spec.lanes}, b.getI1Type());
  SmallVector<Type> types = {MemRefType::get({ShapedType::kDynamic, spec.k, spec.n}, f32),
                             MemRefType::get({ShapedType::kDynamic, spec.k, spec.width}, f32)};
  auto function = func::FuncOp::create(b, loc, spec.symbol(), b.getFunctionType(types, {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(function.addEntryBlock());
  Value source = function.getArgument(0), target = function.getArgument(1);
  auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  Value zero = constant(0), one = constant(1), width = constant(spec.width);
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  Value rows = memref::DimOp::create(b, loc, source, 1), columns = memref::DimOp::create(b, loc, source, 2);
  Value panelsOfOne = arith::CeilDivUIOp::create(b, loc, columns, width);
  Value panels = memref::DimOp::create(b, loc, target, 0);
  auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{panels}, ValueRange{one});
  func::ReturnOp::create(b, loc);

  b.setInsertionPointToStart(parallel.getBody());
  Value at = parallel.getInductionVars()[0];
  Value matrix = arith::DivUIOp::create(b, loc, at, panelsOfOne),
        panel = arith::RemUIOp::create(b, loc, at, panelsOfOne);
  SmallVector<Value> places, masks; // of each vector of a panel's row
  for (int64_t first = 0; first < spec.width; first += spec.lanes) {
    places.push_back(arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, panel, width), constant(first)));
    // Less than nothing may be left: no lane then.
    Value left = arith::SubIOp::create(b, loc, columns, places.back());
    masks.push_back(vector::CreateMaskOp::create(b, loc, maskType, left));
  }
  auto copyRows = [&](bool isWhole) {
    auto loop = scf::ForOp::create(b, loc, zero, rows, one);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value k = loop.getInductionVar();
    for (auto [n, place] : llvm::enumerate(places)) {
      SmallVector<Value> from = {matrix, k, place}, to = {at, k, constant(n * spec.lanes)};
      Value values = isWhole
                         ? vector::LoadOp::create(b, loc, vectorType, source, from).getResult()
                         : vector::MaskedLoadOp::create(b, loc, vectorType, source, from, masks[n], none).getResult();
      vector::StoreOp::create(b, loc, values, target, to);
    }
  };
  Value end = arith::AddIOp::create(b, loc, places.front(), width);
  Value isWhole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, end, columns);
  auto choice = scf::IfOp::create(b, loc, isWhole, /*withElseRegion=*/true);
  b.setInsertionPointToStart(choice.thenBlock());
  copyRows(true);
  b.setInsertionPointToStart(choice.elseBlock());
  copyRows(false);
  return function;
}

} // namespace attn
