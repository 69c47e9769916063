#include "passes/graph/element/Cases.h"

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"

#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;

namespace attn {
namespace {

/// Numbers of tables and of indices beyond this are not followed, so that sums of their multiples do not wrap.
constexpr int64_t kSmallNumber = int64_t{1} << 31;
/// A place that may lie in more rows than these is not told row by row.
constexpr int64_t kMaxRows = 4;
/// How far an element is followed.
constexpr unsigned kMaxDepth = 300;

bool isSmall(int64_t number) { return number > -kSmallNumber && number < kSmallNumber; }

} // namespace

CaseExprRef CaseReader::makeNumber(FloatAttr number) {
  return std::make_shared<const CaseExpr>(
      CaseExpr{.kind = CaseExpr::Number, .type = number.getType(), .number = number});
}

CaseExprRef CaseReader::makeConstant(Attribute constant) {
  if (auto number = dyn_cast_or_null<FloatAttr>(constant))
    return makeNumber(number);
  auto integer = dyn_cast_or_null<IntegerAttr>(constant);
  if (!integer)
    return nullptr;
  APInt value = integer.getValue();
  bool isBit = integer.getType().isInteger(1);
  return makeInteger(integer.getType(), Linear{isBit ? int64_t(value.getZExtValue()) : value.getSExtValue()});
}

CaseExprRef CaseReader::makeInteger(Type type, const Linear &value) {
  return std::make_shared<const CaseExpr>(CaseExpr{.kind = CaseExpr::Integer, .type = type, .integer = value});
}

CaseExprRef CaseReader::makeRead(Value tensor, Place place) {
  return std::make_shared<const CaseExpr>(CaseExpr{.kind = CaseExpr::Read,
                                                   .type = getElementTypeOrSelf(tensor),
                                                   .tensor = tensor,
                                                   .place = SmallVector<Linear, 4>(place)});
}

/// Whether `tensor` may be one place along a dimension of another.
static bool maybePoint(Value tensor) {
  auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>();
  return (slice && slice.getDroppedDims().any()) ||
         llvm::is_contained(cast<RankedTensorType>(tensor.getType()).getShape(), 1);
}

CaseExprRef CaseReader::makeUnknown(Type type) {
  return std::make_shared<const CaseExpr>(CaseExpr{.kind = CaseExpr::Unknown, .type = type});
}

unsigned CaseReader::addVariable(const Linear &size) {
  unsigned number = sizes.size();
  sizes.push_back(size);
  common.addRange(Linear::variable(number), size);
  return number;
}

Linear CaseReader::getSize(Value tensor, int64_t dim) {
  int64_t size = cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
  if (!ShapedType::isDynamic(size))
    return Linear{size};
  return linearOf(Extent::of(tensor, dim));
}

Linear CaseReader::linearOf(const Extent &extent) {
  if (std::optional<int64_t> constant = extent.constant())
    return Linear{*constant};
  for (const auto &known : openSizes)
    if (std::optional<Extent> times = extent.dividedBy(known.first); times && times->constant())
      return Linear::variable(known.second, *times->constant());
  Extent open = extent.getFactor() > 1 ? *extent.dividedBy(Extent(extent.getFactor())) : extent;
  openSizes.emplace_back(open, sizes.size());
  sizes.push_back(Linear());
  return Linear::variable(openSizes.back().second, std::max<int64_t>(extent.getFactor(), 1));
}

std::optional<Linear> CaseReader::linearOf(AffineExpr expr, ArrayRef<Linear> loops) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return loops[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return Linear{constant.getValue()};
  return std::nullopt;
}

std::optional<SmallVector<Linear>> CaseReader::findCoordinates(Value tensor, Place place, const Guards &guards) {
  SmallVector<Linear> found;
  for (unsigned n = 0; n != place.size(); ++n) {
    const Linear &along = place[n];
    if (cast<RankedTensorType>(tensor.getType()).getDimSize(n) == 1) {
      found.emplace_back();
      continue;
    }
    Linear size = getSize(tensor, n);
    auto *is = llvm::find_if(coordinates, [&](const Coordinate &c) {
      return c.size == size && (along == c.place || guards.isZero(along - c.place));
    });
    if (is == coordinates.end() || llvm::is_contained(found, is->place))
      return std::nullopt;
    found.push_back(is->place);
  }
  return found;
}

void CaseReader::read(Value tensor, Place place, const Guards &guards, Take take) {
  if (hasFailed)
    return;
  Operation *op = tensor.getDefiningOp();
  if (stops.contains(tensor))
    return take(guards, makeRead(tensor, place));
  // Behind one place of another tensor, a dimension of size 1 does not tell which.
  bool mayStop = !readsIndex && !(readsPoint && pointsAreParts && maybePoint(tensor));
  if (!coordinates.empty() && (!op || mayStop))
    if (std::optional<SmallVector<Linear>> plain = findCoordinates(tensor, place, guards))
      return take(guards, makeRead(tensor, *plain));
  if (!op)
    return take(guards, makeRead(tensor, place));
  if (depth == kMaxDepth || shared.numSteps == 0)
    return fail();
  --shared.numSteps;
  ++depth;
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    read(cast.getSource(), place, guards, take);
  else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    readSlice(slice, place, guards, take);
  else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    readInserted(insert, place, guards, take);
  else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    readExpanded(expand, place, guards, take);
  else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    readCollapsed(collapse, place, guards, take);
  else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    readLinalg(linalgOp, place, guards, take);
  else if (isa<arith::ConstantOp, WeightOp>(op))
    readConstant(tensor, place, guards, take);
  else
    take(guards, makeRead(tensor, place));
  --depth;
}

void CaseReader::readSlice(tensor::ExtractSliceOp op, Place place, const Guards &guards, Take take) {
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<Linear> source;
  unsigned next = 0;
  for (auto [n, offset] : llvm::enumerate(op.getMixedOffsets())) {
    std::optional<int64_t> stride = getConstantIntValue(op.getMixedStrides()[n]);
    if (!stride || !isSmall(*stride))
      return take(guards, makeUnknown(op.getType().getElementType()));
    source.push_back(getSize(offset) + (dropped[n] ? Linear{0} : place[next++] * *stride));
  }
  read(op.getSource(), source, guards, take);
}

void CaseReader::readInserted(tensor::InsertSliceOp op, Place place, const Guards &guards, Take take) {
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<Linear> source;
  Guards inside = guards;
  bool isPoint = readsPoint;
  for (auto [n, offset] : llvm::enumerate(op.getMixedOffsets())) {
    if (!isConstantIntValue(op.getMixedStrides()[n], 1))
      return take(inside, makeUnknown(op.getType().getElementType()));
    Linear first = getSize(offset), size = getSize(op.getMixedSizes()[n]);
    Linear along = place[n] - first, behind = along - size;
    if (!dropped[n])
      source.push_back(along);
    if (first.getConstant() == 0 && size == getSize(op.getDest(), n))
      continue;
    isPoint |= size.getConstant() == 1;
    // In front of the slice, and behind it.
    Guards before = inside, after = inside;
    before.add(along * -1 - Linear{1});
    after.add(behind);
    for (const Guards &outside : {before, after})
      if (!outside.isEmpty())
        read(op.getDest(), place, outside, take);
    inside.addRange(along, size);
  }
  llvm::SaveAndRestore<bool> point(readsPoint, isPoint);
  if (!inside.isEmpty())
    read(op.getSource(), source, inside, take);
}

void CaseReader::readExpanded(tensor::ExpandShapeOp op, Place place, const Guards &guards, Take take) {
  SmallVector<Linear> source;
  for (const ReassociationIndices &group : op.getReassociationIndices()) {
    Linear whole;
    for (int64_t dim : group) {
      // Only the leading size may be open.
      std::optional<int64_t> size = getSize(op.getResult(), dim).getConstant();
      if (size == 1)
        continue;
      if (!size && whole.getConstant() != 0)
        return take(guards, makeUnknown(op.getType().getElementType()));
      whole = (size ? whole * *size : Linear()) + place[dim];
    }
    source.push_back(whole);
  }
  read(op.getSrc(), source, guards, take);
}

void CaseReader::readCollapsed(tensor::CollapseShapeOp op, Place place, const Guards &guards, Take take) {
  SmallVector<Linear> source;
  readGroups(op, op.getReassociationIndices(), place, source, guards, take);
}

void CaseReader::readGroups(tensor::CollapseShapeOp op, ArrayRef<ReassociationIndices> groups, Place place,
                            SmallVector<Linear> &source, const Guards &guards, Take take) {
  if (groups.empty())
    return read(op.getSrc(), source, guards, take);
  SmallVector<Linear> extents;
  for (int64_t dim : groups.front())
    extents.push_back(getSize(op.getSrc(), dim));
  delinearize(place.front(), extents, guards, [&](const Guards &here, Place digits) {
    llvm::append_range(source, digits);
    readGroups(op, groups.drop_front(), place.drop_front(), source, here, take);
    source.truncate(source.size() - digits.size());
  });
}

void CaseReader::delinearize(const Linear &whole, ArrayRef<Linear> extents, const Guards &guards, TakePlace take) {
  if (extents.empty())
    return take(guards, {});
  auto isUnit = [](const Linear &extent) { return extent.getConstant() == 1; };
  SmallVector<Linear> digits(extents.size());
  if (isUnit(extents.back()))
    return delinearize(whole, extents.drop_back(), guards, [&](const Guards &there, Place leading) {
      llvm::copy(leading, digits.begin());
      take(there, digits);
    });
  if (llvm::all_of(extents.drop_back(), isUnit)) {
    digits.back() = whole;
    return take(guards, digits);
  }
  std::optional<int64_t> size = extents.back().getConstant();
  if (!size || !isSmall(*size) || *size < 1)
    return fail();
  divide(whole, *size, guards, [&](const Guards &here, const Linear &quotient, const Linear &rest) {
    delinearize(quotient, extents.drop_back(), here, [&](const Guards &there, Place leading) {
      SmallVector<Linear> all(leading);
      all.push_back(rest);
      take(there, all);
    });
  });
}

void CaseReader::divide(const Linear &number, int64_t divisor, const Guards &guards, TakeParts take) {
  // The multiples of the divisor that are next to the factors; what is left of them is small.
  Linear quotient;
  quotient.constant = llvm::divideFloorSigned(number.constant, divisor);
  for (int64_t factor : number.factors)
    quotient.factors.push_back((std::abs(factor) + (divisor - 1) / 2) / divisor * (factor < 0 ? -1 : 1));
  Linear rest = number - quotient * divisor;
  Guards::Bounds bounds = guards.bounds(rest);
  auto askForCut = [&] {
    cut = findCut(rest, divisor);
    fail();
  };
  if (!bounds.least || !bounds.greatest)
    return askForCut();
  int64_t first = llvm::divideFloorSigned(*bounds.least, divisor);
  int64_t last = llvm::divideFloorSigned(*bounds.greatest, divisor);
  bool isCoordinate = llvm::count_if(rest.factors, [](int64_t factor) { return factor != 0; }) == 1;
  if (last - first >= kMaxRows || (last != first && isCoordinate && findCut(rest, divisor)))
    return askForCut();
  for (int64_t row = first; row <= last && !hasFailed; ++row) {
    Linear place = rest - Linear{row * divisor};
    Guards here = guards;
    if (first != last)
      here.addRange(place, Linear{divisor});
    if (first == last || !here.isEmpty())
      take(here, quotient + Linear{row}, place);
  }
}

std::optional<CaseReader::Cut> CaseReader::findCut(const Linear &number, int64_t divisor) const {
  for (unsigned n = 0; n != std::min<size_t>(number.factors.size(), numCuttable); ++n) {
    int64_t factor = std::abs(number.factors[n]);
    if (factor == 0 || divisor % factor != 0 || divisor == factor)
      continue;
    int64_t base = divisor / factor;
    Linear size = sizes[n]; // 0 for what stands for an open size
    bool isWhole = size.getConstant() != 0 && size.constant % base == 0 &&
                   llvm::all_of(size.factors, [&](int64_t f) { return f % base == 0; });
    if (isWhole && size.getConstant() != base)
      return Cut{n, base};
  }
  return std::nullopt;
}

void CaseReader::readConstant(Value tensor, Place place, const Guards &guards, Take take) {
  Type element = getElementTypeOrSelf(tensor);
  if (CaseExprRef number = makeConstant(splatConstant(tensor)))
    return take(guards, number);
  ConstantTable table = ConstantTable::read(tensor, symbols, weights);
  if (table.bytes.empty())
    return take(guards, makeRead(tensor, place));
  ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
  if (isa<IntegerType>(element)) {
    std::optional<SmallVector<int64_t>> steps = findSteps(shape, [&](int64_t n) { return table.integerAt(n); });
    if (steps && llvm::all_of(*steps, isSmall) && isSmall(table.integerAt(0))) {
      Linear value{table.integerAt(0)};
      for (auto [step, along] : llvm::zip_equal(*steps, place))
        value = value + along * step;
      return take(guards, makeInteger(element, value));
    }
  }
  if (!isa<FloatType>(element) && !element.isInteger(8))
    return take(guards, makeRead(tensor, place));
  readRuns(tensor, table, place, guards, take);
}

std::optional<CaseReader::Runs> CaseReader::findRuns(Value tensor, const ConstantTable &table) {
  constexpr size_t kMaxRuns = 4;
  Runs found;
  SmallVector<int64_t, 2> sizes, strides;
  int64_t stride = table.size();
  for (auto [n, size] : llvm::enumerate(cast<RankedTensorType>(tensor.getType()).getShape())) {
    stride /= size;
    // Along a dimension that repeats, entries are those of its first place.
    if (llvm::all_of(llvm::seq(table.size()), [&, size = size](int64_t entry) {
          return table.bitsAt(entry) == table.bitsAt(entry - entry / stride % size * stride);
        }))
      continue;
    found.dims.push_back(n);
    sizes.push_back(size);
    strides.push_back(stride);
  }
  if (sizes.size() > 2 || cast<RankedTensorType>(tensor.getType()).getRank() == 0)
    return std::nullopt;
  found.dims.resize(2), sizes.resize(2, 1), strides.resize(2, 0);
  int64_t rows = sizes[0], columns = sizes[1];
  for (auto [rowStep, columnStep] : {std::pair(1, 0), std::pair(0, 1), std::pair(1, 1), std::pair(-1, 1)}) {
    // An entry of each line, from the line of the last row on where they count down.
    int64_t first = rowStep < 0 ? rows - 1 : 0;
    SmallVector<int64_t> entryOf(rows + columns - 1, -1);
    bool isLine = true;
    for (int64_t n = 0; n != rows * columns && isLine; ++n) {
      int64_t row = n / columns, column = n % columns, entry = row * strides[0] + column * strides[1];
      int64_t &known = entryOf[rowStep * row + columnStep * column + first];
      if (known < 0)
        known = entry;
      isLine = table.bitsAt(entry) == table.bitsAt(known);
    }
    found.runs.clear();
    for (int64_t line = 0; isLine && line != int64_t(entryOf.size()) && entryOf[line] >= 0; ++line)
      if (found.runs.empty() || table.bitsAt(found.runs.back().second) != table.bitsAt(entryOf[line]))
        found.runs.emplace_back(line, entryOf[line]);
    found.rowStep = rowStep, found.columnStep = columnStep, found.firstLine = first;
    if (isLine && found.runs.size() <= kMaxRuns)
      return found;
  }
  return std::nullopt;
}

void CaseReader::readRuns(Value tensor, const ConstantTable &table, Place place, const Guards &guards, Take take) {
  auto [known, isNew] = shared.runs.try_emplace(tensor);
  if (isNew)
    known->second = findRuns(tensor, table);
  std::optional<Runs> runs = known->second;
  if (!runs)
    return take(guards, makeRead(tensor, place));
  Linear line =
      place[runs->dims[0]] * runs->rowStep + place[runs->dims[1]] * runs->columnStep + Linear{runs->firstLine};
  for (auto [n, run] : llvm::enumerate(runs->runs)) {
    Guards here = guards;
    if (n != 0)
      here.add(line - Linear{run.first});
    if (n + 1 != runs->runs.size())
      here.add(Linear{runs->runs[n + 1].first - 1} - line);
    if (here.isEmpty())
      continue;
    take(here, makeConstant(table.attributeAt(run.second)));
  }
}

bool CaseReader::isSame(const CaseExpr &a, const CaseExpr &b, const Guards &guards) {
  if (a.kind == CaseExpr::Unknown || a.kind != b.kind || a.type != b.type || a.operands.size() != b.operands.size())
    return false;
  auto isEqual = [&](const Linear &x, const Linear &y) { return x == y || guards.isZero(x - y); };
  bool isSameOp = a.op == b.op || (a.op && b.op && a.kind == CaseExpr::Apply && a.op->getName() == b.op->getName() &&
                                   a.op->getAttrDictionary() == b.op->getAttrDictionary());
  return isSameOp && a.number == b.number && a.tensor == b.tensor && a.summed == b.summed &&
         isEqual(a.integer, b.integer) && llvm::equal(a.place, b.place, isEqual) &&
         llvm::equal(a.operands, b.operands,
                     [&](const CaseExprRef &x, const CaseExprRef &y) { return isSame(*x, *y, guards); });
}

CaseExprRef CaseReader::substitute(const CaseExprRef &expr, Value tensor, const CaseExprRef &number) {
  if (expr->kind == CaseExpr::Read && expr->tensor == tensor)
    return number;
  if (expr->kind != CaseExpr::Apply)
    return expr;
  SmallVector<CaseExprRef> operands;
  for (const CaseExprRef &operand : expr->operands)
    operands.push_back(substitute(operand, tensor, number));
  return applyOp(expr->op, operands);
}

} // namespace attn
