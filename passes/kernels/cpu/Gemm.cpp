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
  /// a whole panel, or what is left in the last one (kDynamic: the run knows).
  void forPanelColumns(function_ref<void(int64_t)> emitColumns);
  int64_t vectorsOf(int64_t count) const;
  void emitElement(Value row, int64_t vectorNumber, int64_t count, Value sum);
  Value load(Value buffer, ValueRange indices, Value mask);

  OpBuilder &b;
  Location loc;
  const GemmSpec &spec;
  const int64_t width;
  const VectorType vectorType;
  const bool isDirect;

  Value a, panels, flatPanels, c, scratch;
  SmallVector<Value> operands;
  // rows, numPanels and blocks are those of one product of a batch.
  Value zero, kSize, columns, rows, numPanels, totalPanels, blocks, height, extra;
  // Of the task at hand; panelAt is the panel's place in B.
  Value panel, panelAt, row, tileHeight, firstColumn, prefetchStep, prefetchAt;
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
  SmallVector<Type> types = {memref({spec.m, spec.k}),
                             memref({spec.isBatched ? ShapedType::kDynamic : spec.numPanels(), spec.k, width})};
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

  zero = constant(0);
  auto sizeOf = [&](int64_t size, Value buffer, int64_t dim) -> Value {
    return ShapedType::isDynamic(size) ? memref::DimOp::create(b, loc, buffer, dim).getResult() : constant(size);
  };
  auto atLeastOne = [&](Value x) -> Value { return arith::MaxUIOp::create(b, loc, x, constant(1)); };
  kSize = sizeOf(spec.k, a, 1);
  columns = sizeOf(spec.n, c, 1);
  numPanels = ShapedType::isDynamic(spec.n) ? arith::CeilDivUIOp::create(b, loc, columns, constant(width)).getResult()
                                            : constant(spec.numPanels());
  rows = memref::DimOp::create(b, loc, a, 0);
  totalPanels = numPanels;
  Value batches;
  if (spec.isBatched) {
    totalPanels = memref::DimOp::create(b, loc, panels, 0);
    batches = arith::DivUIOp::create(b, loc, totalPanels, atLeastOne(numPanels));
    rows = arith::DivUIOp::create(b, loc, rows, atLeastOne(batches));
  }
  // M rows in ceil(M / tileRows) blocks whose heights differ by one at most: the
  // first `extra` have height + 1 rows. M = 50 in tiles of 8 is 8 + 6 * 7.
  blocks = arith::CeilDivUIOp::create(b, loc, rows, constant(spec.tileRows));
  Value divisor = atLeastOne(blocks);
  height = arith::DivUIOp::create(b, loc, rows, divisor);
  extra = arith::RemUIOp::create(b, loc, rows, divisor);
  // Floats that the prefetch pointer moves a k step, so that the blocks of one
  // panel together fetch the next one.
  prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(width), divisor);

  Value tasks = mul(numPanels, blocks);
  if (batches)
    tasks = mul(tasks, batches);
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
  Value group = blocks, firstBlock, batch;
  if (spec.isBatched) {
    Value perBatch = mul(numPanels, blocks);
    batch = arith::DivUIOp::create(b, loc, task, perBatch);
    task = arith::RemUIOp::create(b, loc, task, perBatch);
  }
  if (spec.chunkBlocks) {
    // All chunks are whole but the last.
    Value chunkSize = constant(spec.chunkBlocks), perChunk = mul(numPanels, chunkSize);
    Value chunk = arith::DivUIOp::create(b, loc, task, perChunk);
    task = arith::RemUIOp::create(b, loc, task, perChunk);
    firstBlock = mul(chunk, chunkSize);
    group = arith::MinUIOp::create(b, loc, chunkSize, arith::SubIOp::create(b, loc, blocks, firstBlock));
    prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(width), group);
  }
  panel = panelAt = arith::DivUIOp::create(b, loc, task, group);
  Value inGroup = arith::RemUIOp::create(b, loc, task, group), block = inGroup;
  if (firstBlock)
    block = add(block, firstBlock);
  row = add(mul(block, height), arith::MinUIOp::create(b, loc, block, extra));
  if (batch) {
    row = add(row, mul(batch, rows));
    panelAt = add(panel, mul(batch, numPanels));
  }
  firstColumn = mul(panel, constant(width));
  Value isTaller = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, extra);
  tileHeight = add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), isTaller));
  // The last panel has none after it and touches itself instead.
  Value last = arith::SubIOp::create(b, loc, totalPanels, constant(1));
  Value next = arith::MinUIOp::create(b, loc, add(panelAt, constant(1)), last);
  prefetchAt = add(mul(next, mul(kSize, constant(width))), mul(inGroup, mul(prefetchStep, kSize)));

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
  int64_t tallest = heights.pop_back_val();
  if (heights.empty()) {
    emitTile(tallest);
  } else {
    auto choice = scf::IndexSwitchOp::create(b, loc, TypeRange(), tileHeight, heights, heights.size());
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, h] : llvm::zip_equal(choice.getCaseRegions(), heights)) {
      b.setInsertionPointToStart(&region.emplaceBlock());
      emitTile(h);
      scf::YieldOp::create(b, loc);
    }
    b.setInsertionPointToStart(&choice.getDefaultRegion().emplaceBlock());
    emitTile(tallest);
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
  SmallVector<Value> tileRows;
  for (int64_t r = 0; r < height; ++r)
    tileRows.push_back(add(row, constant(r)));
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  SmallVector<Value> inits(height * vectors, none);
  inits.push_back(prefetchAt);
  scf::ForOp loop = createLoop(kSize, inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value k = loop.getInductionVar();
  SmallVector<Value> sums(loop.getRegionIterArgs());
  Value &at = sums.back();

  SmallVector<Value> loaded;
  for (int64_t v = 0; v < vectors; ++v)
    loaded.push_back(
        vector::LoadOp::create(b, loc, vectorType, panels, ValueRange{panelAt, k, constant(v * spec.lanes)}));
  for (int64_t p = 0; p < prefetches; ++p)
    memref::PrefetchOp::create(b, loc, flatPanels, ValueRange{add(at, constant(p * kLineFloats))}, /*isWrite=*/false,
                               /*localityHint=*/2, /*isDataCache=*/true);
  at = add(at, prefetchStep);
  for (int64_t r = 0; r < height; ++r) {
    Value scalar = memref::LoadOp::create(b, loc, a, ValueRange{tileRows[r], k});
    Value splat = vector::BroadcastOp::create(b, loc, vectorType, scalar);
    for (int64_t v = 0; v < vectors; ++v) {
      Value &sum = sums[r * vectors + v];
      if (spec.hasFma) {
        sum = vector::FMAOp::create(b, loc, splat, loaded[v], sum);
      } else {
        auto contract = arith::FastMathFlagsAttr::get(b.getContext(), arith::FastMathFlags::contract);
        Value product = arith::MulFOp::create(b, loc, splat, loaded[v], contract);
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
  int64_t rest = ShapedType::isDynamic(spec.n) ? ShapedType::kDynamic : spec.n % width;
  if (rest == 0)
    return emitColumns(width);
  if (spec.numPanels() == 1)
    return emitColumns(rest);
  Value last = arith::SubIOp::create(b, loc, numPanels, constant(1));
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, panel, last);
  auto choice = scf::IfOp::create(b, loc, isLast, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  emitColumns(rest);
  b.setInsertionPointToStart(choice.elseBlock());
  emitColumns(width);
}

/// The vectors that hold `count` columns: all that a panel has where only the
/// run knows.
int64_t GemmEmitter::vectorsOf(int64_t count) const {
  return ShapedType::isDynamic(count) ? spec.tileVectors : llvm::divideCeil(count, spec.lanes);
}

void GemmEmitter::emitDirect(int64_t height, ArrayRef<Value> sums) {
  forPanelColumns([&](int64_t count) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t v = 0; v < vectorsOf(count); ++v)
        emitElement(add(row, constant(r)), v, count, sums[r * spec.tileVectors + v]);
  });
}

void GemmEmitter::emitStaged() {
  scf::ForOp loop = createLoop(tileHeight, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value r = loop.getInductionVar(), at = add(row, r);
  forPanelColumns([&](int64_t count) {
    for (int64_t v = 0; v < vectorsOf(count); ++v) {
      Value sum = vector::LoadOp::create(b, loc, vectorType, scratch, ValueRange{r, constant(v * spec.lanes)});
      emitElement(at, v, count, sum);
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
/// `count` columns, and stores it.
void GemmEmitter::emitElement(Value row, int64_t vectorNumber, int64_t count, Value sum) {
  int64_t first = vectorNumber * spec.lanes;
  Value column = add(firstColumn, constant(first));
  Value mask;
  auto maskType = VectorType::get({spec.lanes}, b.getI1Type());
  if (ShapedType::isDynamic(count)) // what is left may be less than nothing: no lane then
    mask = vector::CreateMaskOp::create(b, loc, maskType, ValueRange{arith::SubIOp::create(b, loc, columns, column)});
  else if (count - first < spec.lanes)
    mask = vector::ConstantMaskOp::create(b, loc, maskType, ArrayRef<int64_t>{count - first});
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
  // A block of A that is read for every panel, within half the cache.
  int64_t blockBytes = 4 * spec.tileRows * (ShapedType::isDynamic(k) ? 1024 : std::max<int64_t>(k, 1));
  spec.chunkBlocks = std::max<int64_t>(target.getL2() / 2 / blockBytes, 1);
  if (!ShapedType::isDynamic(m) && llvm::divideCeil(m, spec.tileRows) <= spec.chunkBlocks)
    spec.chunkBlocks = 0;
  return spec;
}

std::string GemmSpec::symbol() const {
  auto size = [](int64_t number) { return ShapedType::isDynamic(number) ? "x" : std::to_string(number); };
  std::string name = llvm::formatv("gemm_f32{0}_m{1}_k{2}_n{3}_{4}_{5}x{6}x{7}", isBatched ? "_batch" : "", size(m),
                                   size(k), size(n), hasFma ? "fma" : "mul", tileRows, tileVectors, lanes);
  if (chunkBlocks)
    name += "_c" + std::to_string(chunkBlocks);
  if (!epilogue)
    return name;
  std::string key = blockSignature(*epilogue) + std::to_string(accumulator);
  for (EpilogueOperand kind : operands)
    key += getLetter(kind);
  return name + llvm::formatv("_e{0:x-16}", llvm::xxh3_64bits(key)).str();
}

bool canBuildGemm(const GemmSpec &spec, std::string *reason) {
  auto isSize = [](int64_t size, int64_t least) { return size >= least || ShapedType::isDynamic(size); };
  if (!isSize(spec.k, 1) || !isSize(spec.n, 1) || !isSize(spec.m, 0))
    return fail(reason, "the sizes M, K, N (" + Twine(spec.m) + ", " + Twine(spec.k) + ", " + Twine(spec.n) +
                            ") are not positive");
  if (spec.isBatched && !ShapedType::isDynamic(spec.m))
    return fail(reason, "a batch has a number of rows that the run knows");
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
