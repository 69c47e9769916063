#include "passes/kernels/cpu/Gemm.h"

#include "passes/kernels/cpu/RegionVectorizer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kLineFloats = 16; // of one cache line
// An epilogue up to this cost is applied to the sums in their registers, once
// for every tile height; a dearer one would be copied too often, and is one
// loop over the tile instead. One erf counts as kMathCost.
constexpr int64_t kDirectCost = 8;
constexpr int64_t kMathCost = 20;

int64_t getCost(Block *block) {
  int64_t cost = 0;
  if (block)
    for (Operation &op : block->without_terminator())
      cost += isa_and_nonnull<math::MathDialect>(op.getDialect()) ? kMathCost : 1;
  return cost;
}

StringRef getLetter(EpilogueOperand kind) {
  switch (kind) {
  case EpilogueOperand::Scalar:
    return "s";
  case EpilogueOperand::RowVector:
    return "r";
  case EpilogueOperand::Column:
    return "c";
  case EpilogueOperand::Full:
    return "f";
  }
  llvm_unreachable("covered switch");
}

//===----------------------------------------------------------------------===//
// GemmEmitter
//===----------------------------------------------------------------------===//

class GemmEmitter {
public:
  GemmEmitter(OpBuilder &builder, Location loc, const GemmSpec &spec)
      : b(builder), loc(loc), spec(spec), width(spec.panelWidth()),
        vectorType(VectorType::get({spec.lanes}, builder.getF32Type())),
        isDirect(getCost(spec.epilogue) <= kDirectCost) {}

  func::FuncOp emit();

private:
  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  scf::ForOp createLoop(Value end, ValueRange inits);

  void emitTask(Value task);
  void emitTile(int64_t height);
  SmallVector<Value> emitSums(int64_t height);
  void emitDirect(int64_t height, ArrayRef<Value> sums);
  void emitStaged();
  /// Runs `emitColumns(count)` for the number of columns of the panel at hand:
  /// a whole panel, or what is left in the last one.
  void forPanelColumns(function_ref<void(int64_t)> emitColumns);
  void emitElement(Value row, int64_t vectorNumber, int64_t columns, Value sum);
  Value load(Value buffer, ValueRange indices, Value mask);

  OpBuilder &b;
  Location loc;
  const GemmSpec &spec;
  const int64_t width;
  const VectorType vectorType;
  const bool isDirect;

  Value a, panels, flatPanels, c, scratch;
  SmallVector<Value> operands;
  Value zero, blocks, height, extra, prefetchStep;
  // Of the task at hand.
  Value panel, row, tileHeight, firstColumn, prefetchAt;
};

/// A loop from 0 that LLVM must not unroll: the micro-kernel's order of loads
/// is what it is for the sake of the first-level cache.
scf::ForOp GemmEmitter::createLoop(Value end, ValueRange inits) {
  auto loop = scf::ForOp::create(b, loc, zero, end, constant(1), inits);
  auto yes = BoolAttr::get(b.getContext(), true);
  auto unroll = LLVM::LoopUnrollAttr::get(b.getContext(), yes, {}, {}, {}, {}, {}, {});
  loop->setAttr("llvm.loop_annotation", LLVM::LoopAnnotationAttr::get(b.getContext(), {}, {}, {}, unroll, {}, {}, {},
                                                                      {}, {}, {}, {}, {}, {}, {}, {}));
  return loop;
}

func::FuncOp GemmEmitter::emit() {
  Type f32 = b.getF32Type();
  auto memref = [&](ArrayRef<int64_t> shape) { return MemRefType::get(shape, f32); };
  SmallVector<Type> types = {memref({spec.m, spec.k}), memref({spec.numPanels(), spec.k, width})};
  for (EpilogueOperand kind : spec.operands)
    switch (kind) {
    case EpilogueOperand::Scalar:
      types.push_back(memref({}));
      break;
    case EpilogueOperand::RowVector:
      types.push_back(memref({spec.n}));
      break;
    case EpilogueOperand::Column:
      types.push_back(memref({spec.m}));
      break;
    case EpilogueOperand::Full:
      types.push_back(memref({spec.m, spec.n}));
      break;
    }
  types.push_back(memref({spec.m, spec.n}));
  auto function = func::FuncOp::create(b, loc, spec.symbol(), b.getFunctionType(types, {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(function.addEntryBlock());
  a = function.getArgument(0);
  panels = function.getArgument(1);
  llvm::append_range(operands, function.getArguments().drop_front(2).drop_back());
  c = function.getArguments().back();
  flatPanels = memref::CollapseShapeOp::create(b, loc, panels, ArrayRef<ReassociationIndices>{{0, 1, 2}});

  // M rows in ceil(M / tileRows) blocks whose heights differ by one at most: the
  // first `extra` have height + 1 rows. M = 50 in tiles of 8 is 8 + 6 * 7.
  zero = constant(0);
  Value rows = memref::DimOp::create(b, loc, a, 0);
  blocks = arith::CeilDivUIOp::create(b, loc, rows, constant(spec.tileRows));
  Value divisor = arith::MaxUIOp::create(b, loc, blocks, constant(1));
  height = arith::DivUIOp::create(b, loc, rows, divisor);
  extra = arith::RemUIOp::create(b, loc, rows, divisor);
  // Floats that the prefetch pointer moves a k step, so that the blocks of one
  // panel together fetch the next one.
  prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(width), divisor);

  Value tasks = mul(constant(spec.numPanels()), blocks);
  auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{tasks}, ValueRange{constant(1)});
  b.setInsertionPointToStart(parallel.getBody());
  emitTask(parallel.getInductionVars()[0]);
  b.setInsertionPointToEnd(&function.front());
  func::ReturnOp::create(b, loc);
  return function;
}

void GemmEmitter::emitTask(Value task) {
  if (!isDirect)
    scratch = memref::AllocaOp::create(b, loc, MemRefType::get({spec.tileRows, width}, b.getF32Type()), ValueRange(),
                                       b.getI64IntegerAttr(64));
  panel = arith::DivUIOp::create(b, loc, task, blocks);
  Value block = arith::RemUIOp::create(b, loc, task, blocks);
  row = add(mul(block, height), arith::MinUIOp::create(b, loc, block, extra));
  firstColumn = mul(panel, constant(width));
  Value isTaller = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, extra);
  tileHeight = add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), isTaller));
  // The last panel has none after it and touches itself instead.
  Value next = arith::MinUIOp::create(b, loc, add(panel, constant(1)), constant(spec.numPanels() - 1));
  prefetchAt = add(mul(next, constant(spec.k * width)), mul(block, mul(prefetchStep, constant(spec.k))));

  // The heights that occur: all for dynamic M, else M / blocks and one more.
  SmallVector<int64_t> heights;
  if (ShapedType::isDynamic(spec.m)) {
    for (int64_t h = 1; h <= spec.tileRows; ++h)
      heights.push_back(h);
  } else if (spec.m > 0) {
    int64_t count = llvm::divideCeil(spec.m, spec.tileRows);
    heights.push_back(spec.m / count);
    if (spec.m % count)
      heights.push_back(spec.m / count + 1);
  }
  if (heights.empty())
    return;
  int64_t last = heights.pop_back_val();
  if (heights.empty()) {
    emitTile(last);
  } else {
    auto choice = scf::IndexSwitchOp::create(b, loc, TypeRange(), tileHeight, heights, heights.size());
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, h] : llvm::zip_equal(choice.getCaseRegions(), heights)) {
      b.setInsertionPointToStart(&region.emplaceBlock());
      emitTile(h);
      scf::YieldOp::create(b, loc);
    }
    b.setInsertionPointToStart(&choice.getDefaultRegion().emplaceBlock());
    emitTile(last);
    scf::YieldOp::create(b, loc);
  }
  if (!isDirect)
    emitStaged();
}

void GemmEmitter::emitTile(int64_t height) {
  SmallVector<Value> sums = emitSums(height);
  if (isDirect)
    return emitDirect(height, sums);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < spec.tileVectors; ++v)
      vector::StoreOp::create(b, loc, sums[r * spec.tileVectors + v], scratch,
                              ValueRange{constant(r), constant(v * spec.lanes)});
}

/// The sums of `height` rows and one panel: height * tileVectors vectors.
SmallVector<Value> GemmEmitter::emitSums(int64_t height) {
  int64_t vectors = spec.tileVectors;
  // With one or two blocks a step moves by several lines, and each of them must
  // be asked for (M = 8, cold: 85 -> 115 GF). With more blocks the same lines are
  // asked for again, which costs nothing that can be measured.
  int64_t prefetches = llvm::divideCeil(width, kLineFloats);
  SmallVector<Value> rows;
  for (int64_t r = 0; r < height; ++r)
    rows.push_back(add(row, constant(r)));
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  SmallVector<Value> inits(height * vectors, none);
  inits.push_back(prefetchAt);
  scf::ForOp loop = createLoop(constant(spec.k), inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value k = loop.getInductionVar();
  SmallVector<Value> sums(loop.getRegionIterArgs());
  Value &at = sums.back();

  SmallVector<Value> columns;
  for (int64_t v = 0; v < vectors; ++v)
    columns.push_back(
        vector::LoadOp::create(b, loc, vectorType, panels, ValueRange{panel, k, constant(v * spec.lanes)}));
  for (int64_t p = 0; p < prefetches; ++p)
    memref::PrefetchOp::create(b, loc, flatPanels, ValueRange{add(at, constant(p * kLineFloats))}, /*isWrite=*/false,
                               /*localityHint=*/2, /*isDataCache=*/true);
  at = add(at, prefetchStep);
  for (int64_t r = 0; r < height; ++r) {
    Value scalar = memref::LoadOp::create(b, loc, a, ValueRange{rows[r], k});
    Value splat = vector::BroadcastOp::create(b, loc, vectorType, scalar);
    for (int64_t v = 0; v < vectors; ++v) {
      Value &sum = sums[r * vectors + v];
      if (spec.hasFma) {
        sum = vector::FMAOp::create(b, loc, splat, columns[v], sum);
      } else {
        auto contract = arith::FastMathFlagsAttr::get(b.getContext(), arith::FastMathFlags::contract);
        Value product = arith::MulFOp::create(b, loc, splat, columns[v], contract);
        sum = arith::AddFOp::create(b, loc, sum, product, contract);
      }
    }
  }
  scf::YieldOp::create(b, loc, sums);
  SmallVector<Value> results(loop.getResults());
  results.pop_back();
  return results;
}

void GemmEmitter::forPanelColumns(function_ref<void(int64_t)> emitColumns) {
  int64_t rest = spec.n % width;
  if (rest == 0)
    return emitColumns(width);
  if (spec.numPanels() == 1)
    return emitColumns(rest);
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, panel, constant(spec.numPanels() - 1));
  auto choice = scf::IfOp::create(b, loc, isLast, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  emitColumns(rest);
  b.setInsertionPointToStart(choice.elseBlock());
  emitColumns(width);
}

void GemmEmitter::emitDirect(int64_t height, ArrayRef<Value> sums) {
  forPanelColumns([&](int64_t columns) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t v = 0; v * spec.lanes < columns; ++v)
        emitElement(add(row, constant(r)), v, columns, sums[r * spec.tileVectors + v]);
  });
}

void GemmEmitter::emitStaged() {
  scf::ForOp loop = createLoop(tileHeight, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value r = loop.getInductionVar(), at = add(row, r);
  forPanelColumns([&](int64_t columns) {
    for (int64_t v = 0; v * spec.lanes < columns; ++v) {
      Value sum = vector::LoadOp::create(b, loc, vectorType, scratch, ValueRange{r, constant(v * spec.lanes)});
      emitElement(at, v, columns, sum);
    }
  });
}

Value GemmEmitter::load(Value buffer, ValueRange indices, Value mask) {
  if (!mask)
    return vector::LoadOp::create(b, loc, vectorType, buffer, indices);
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  return vector::MaskedLoadOp::create(b, loc, vectorType, buffer, indices, mask, none);
}

/// Applies the epilogue to the vector `vectorNumber` of a row whose panel has
/// `columns` columns, and stores it.
void GemmEmitter::emitElement(Value row, int64_t vectorNumber, int64_t columns, Value sum) {
  int64_t first = vectorNumber * spec.lanes;
  Value column = add(firstColumn, constant(first));
  Value mask;
  if (columns - first < spec.lanes)
    mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({spec.lanes}, b.getI1Type()),
                                          ArrayRef<int64_t>{columns - first});
  Value result = sum;
  if (spec.epilogue) {
    SmallVector<Value> arguments;
    for (auto [kind, buffer] : llvm::zip_equal(spec.operands, operands)) {
      if (arguments.size() == spec.accumulator)
        arguments.push_back(sum);
      switch (kind) {
      case EpilogueOperand::Scalar:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, ValueRange()));
        break;
      case EpilogueOperand::RowVector:
        arguments.push_back(load(buffer, {column}, mask));
        break;
      case EpilogueOperand::Column:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, row));
        break;
      case EpilogueOperand::Full:
        arguments.push_back(load(buffer, {row, column}, mask));
        break;
      }
    }
    // The accumulator when it comes last, then what nothing uses.
    arguments.resize(spec.epilogue->getNumArguments(), sum);
    result = *vectorizeBlock(b, *spec.epilogue, arguments, spec.lanes, nullptr);
  }
  if (mask)
    vector::MaskedStoreOp::create(b, loc, c, ValueRange{row, column}, mask, result);
  else
    vector::StoreOp::create(b, loc, result, c, ValueRange{row, column});
}

bool fail(std::string *reason, const Twine &text) {
  if (reason)
    *reason = text.str();
  return false;
}

} // namespace

//===----------------------------------------------------------------------===//
// GemmSpec
//===----------------------------------------------------------------------===//

GemmSpec GemmSpec::forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n) {
  GemmSpec spec;
  spec.m = m;
  spec.k = k;
  spec.n = n;
  spec.lanes = target.getF32Lanes();
  spec.hasFma = spec.lanes > 4;
  // 24 + 3 + 1 of 32 registers; 12 + 2 + 1 and 8 + 2 + 1 of 16.
  spec.tileRows = spec.lanes == 16 ? 8 : spec.lanes == 8 ? 6 : 4;
  spec.tileVectors = spec.lanes == 16 ? 3 : 2;
  return spec;
}

std::string GemmSpec::symbol() const {
  std::string rows = ShapedType::isDynamic(m) ? "x" : std::to_string(m);
  std::string name = llvm::formatv("gemm_f32_m{0}_k{1}_n{2}_{3}_{4}x{5}x{6}", rows, k, n, hasFma ? "fma" : "mul",
                                   tileRows, tileVectors, lanes);
  if (!epilogue)
    return name;
  std::string key = blockSignature(*epilogue) + std::to_string(accumulator);
  for (EpilogueOperand kind : operands)
    key += getLetter(kind);
  return name + llvm::formatv("_e{0:x-16}", llvm::xxh3_64bits(key)).str();
}

bool canBuildGemm(const GemmSpec &spec, std::string *reason) {
  if (spec.k < 1 || spec.n < 1 || (spec.m < 0 && !ShapedType::isDynamic(spec.m)))
    return fail(reason, "the sizes M, K, N (" + Twine(spec.m) + ", " + Twine(spec.k) + ", " + Twine(spec.n) +
                            ") are not positive");
  if (spec.lanes < 1 || spec.tileRows < 1 || spec.tileVectors < 1)
    return fail(reason, "the tile is empty");
  if (!spec.epilogue)
    return spec.operands.empty() || fail(reason, "there are operands but no epilogue");
  if (!canVectorizeBlock(*spec.epilogue, reason))
    return false;
  unsigned used = spec.operands.size() + 1;
  if (spec.accumulator >= used || spec.epilogue->getNumArguments() < used)
    return fail(reason, "the epilogue has " + Twine(spec.epilogue->getNumArguments()) + " arguments for the sum and " +
                            Twine(spec.operands.size()) + " operands");
  for (BlockArgument argument : spec.epilogue->getArguments()) {
    if (argument.getArgNumber() >= used && !argument.use_empty())
      return fail(reason, "the epilogue uses its argument number " + Twine(argument.getArgNumber()));
    if (!argument.getType().isF32())
      return fail(reason, "an argument of the epilogue is not f32");
  }
  if (!spec.epilogue->getTerminator()->getOperand(0).getType().isF32())
    return fail(reason, "the epilogue does not yield f32");
  for (Operation &op : *spec.epilogue)
    if (op.getName().getStringRef() == "linalg.index" || isa<IndexOp>(op))
      return fail(reason, "the epilogue asks for its position");
  return true;
}

FailureOr<func::FuncOp> buildGemm(OpBuilder &builder, Location loc, const GemmSpec &spec) {
  std::string reason;
  if (!canBuildGemm(spec, &reason))
    return emitError(loc, "cannot build a GEMM kernel: ") << reason;
  return GemmEmitter(builder, loc, spec).emit();
}

} // namespace attn
