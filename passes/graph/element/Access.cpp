#include "passes/graph/element/Access.h"

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace attn {

//===----------------------------------------------------------------------===//
// Extent
//===----------------------------------------------------------------------===//

/// The first argument of the function around `argument` with a dimension that
/// the model calls as it calls `dim` of `argument`.
static std::pair<Value, int64_t> firstOfName(BlockArgument argument, int64_t dim) {
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function || argument.getOwner() != &function.getFunctionBody().front())
    return {argument, dim};
  auto nameOf = [&](unsigned number, int64_t dim) -> StringRef {
    auto names = function.getArgAttrOfType<ArrayAttr>(number, AttnDialect::kDimsAttr);
    if (!names || dim >= static_cast<int64_t>(names.size()))
      return "";
    auto name = dyn_cast<StringAttr>(names[dim]);
    return name ? name.getValue() : StringRef();
  };
  StringRef name = nameOf(argument.getArgNumber(), dim);
  if (name.empty())
    return {argument, dim};
  for (BlockArgument other : function.getFunctionBody().front().getArguments()) {
    auto type = dyn_cast<RankedTensorType>(other.getType());
    for (int64_t n = 0; type && n < type.getRank(); ++n)
      if (type.isDynamicDim(n) && nameOf(other.getArgNumber(), n) == name)
        return {other, n};
  }
  return {argument, dim};
}

/// What a loop starts from that writes into the tensor that it carries, and so keeps its sizes; null for other values.
static Value findWritten(Value value) {
  auto loop = value.getDefiningOp<scf::ForOp>();
  if (!loop)
    return {};
  unsigned number = cast<OpResult>(value).getResultNumber();
  Value carried = loop.getRegionIterArg(number), last = loop.getBody()->getTerminator()->getOperand(number);
  while (last && last != carried) {
    if (auto insert = last.getDefiningOp<tensor::InsertOp>())
      last = insert.getDest();
    else if (auto insert = last.getDefiningOp<tensor::InsertSliceOp>())
      last = insert.getDest();
    else
      last = findWritten(last);
  }
  return last ? loop.getInits()[number] : Value();
}

Extent Extent::of(Value tensor, int64_t dim) {
  while (true) {
    auto type = cast<RankedTensorType>(tensor.getType());
    if (!type.isDynamicDim(dim))
      return Extent(type.getDimSize(dim));
    Operation *op = tensor.getDefiningOp();
    if (auto empty = dyn_cast_or_null<tensor::EmptyOp>(op))
      return of(empty.getDynamicSize(dim));
    if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op))
      return of(expand.getMixedOutputShape()[dim]);
    if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op)) {
      Extent product(1);
      ReassociationIndices group = collapse.getReassociationIndices()[dim];
      for (int64_t source : group)
        product = product * of(collapse.getSrc(), source);
      return product;
    }
    if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op);
        slice && slice.getSourceType().getRank() == type.getRank())
      return of(slice.getMixedSizes()[dim]);
    if (auto destination = dyn_cast_or_null<DestinationStyleOpInterface>(op)) {
      tensor = destination.getTiedOpOperand(cast<OpResult>(tensor))->get();
    } else if (auto cast = dyn_cast_or_null<tensor::CastOp>(op)) {
      if (!isa<RankedTensorType>(cast.getSource().getType()))
        break;
      tensor = cast.getSource();
    } else if (auto softmax = dyn_cast_or_null<SoftmaxOp>(op)) {
      tensor = softmax.getInput();
    } else if (auto norm = dyn_cast_or_null<LayerNormOp>(op)) {
      tensor = norm.getInput();
    } else if (Value written = findWritten(tensor)) {
      tensor = written;
    } else {
      break;
    }
  }
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    std::tie(tensor, dim) = firstOfName(argument, dim);
  Extent extent(1);
  extent.symbols.push_back({tensor, dim});
  return extent;
}

Extent Extent::of(OpFoldResult size) {
  if (std::optional<int64_t> constant = getConstantIntValue(size))
    return Extent(*constant);
  Value value = cast<Value>(size);
  if (auto product = value.getDefiningOp<arith::MulIOp>())
    return of(OpFoldResult(product.getLhs())) * of(OpFoldResult(product.getRhs()));
  if (auto dim = value.getDefiningOp<tensor::DimOp>())
    if (std::optional<int64_t> index = dim.getConstantIndex();
        index && isa<RankedTensorType>(dim.getSource().getType()) &&
        *index < cast<RankedTensorType>(dim.getSource().getType()).getRank())
      return of(dim.getSource(), *index);
  Extent extent(1);
  extent.symbols.push_back({value, -1});
  return extent;
}

Extent operator*(const Extent &a, const Extent &b) {
  Extent product(a.factor * b.factor);
  product.symbols = a.symbols;
  llvm::append_range(product.symbols, b.symbols);
  return product;
}

std::optional<Extent> Extent::dividedBy(const Extent &b) const {
  if (b.factor == 0 || factor % b.factor != 0)
    return std::nullopt;
  Extent quotient(factor / b.factor);
  quotient.symbols = symbols;
  for (const Symbol &symbol : b.symbols) {
    auto *it = llvm::find(quotient.symbols, symbol);
    if (it == quotient.symbols.end())
      return std::nullopt;
    quotient.symbols.erase(it);
  }
  return quotient;
}

bool Extent::isMoreBy(int64_t count, const Extent &b) const {
  if (symbols.empty() || b.symbols.empty())
    return symbols.empty() && b.symbols.empty() && factor == b.factor + count;
  if (factor != 1 || symbols.size() != 1 || symbols.front().dim >= 0)
    return false;
  auto sum = symbols.front().value.getDefiningOp<arith::AddIOp>();
  return sum && llvm::any_of(llvm::seq(2), [&](unsigned n) {
           return isConstantIntValue(sum->getOperand(n), count) && of(OpFoldResult(sum->getOperand(1 - n))) == b;
         });
}

bool operator==(const Extent &a, const Extent &b) {
  if (a.factor != b.factor || a.symbols.size() != b.symbols.size())
    return false;
  if (a.factor == 0)
    return true;
  std::optional<Extent> quotient = a.dividedBy(b);
  return quotient && quotient->isOne();
}

OpFoldResult Extent::materialize(OpBuilder &b, Location loc) const {
  if (symbols.empty())
    return b.getIndexAttr(factor);
  Value product;
  for (const Symbol &symbol : symbols) {
    Value size = symbol.dim < 0 ? symbol.value : b.createOrFold<tensor::DimOp>(loc, symbol.value, symbol.dim);
    product = product ? b.createOrFold<arith::MulIOp>(loc, product, size) : size;
  }
  if (factor != 1)
    product = b.createOrFold<arith::MulIOp>(loc, product, arith::ConstantIndexOp::create(b, loc, factor));
  return product;
}

//===----------------------------------------------------------------------===//
// AtomSpace
//===----------------------------------------------------------------------===//

Atoms AtomSpace::add(const Extent &extent) {
  if (extent.isOne())
    return {};
  entries.push_back({extent, {}});
  return {static_cast<unsigned>(entries.size() - 1)};
}

void AtomSpace::resolve(Atoms &atoms) const {
  for (size_t n = 0; n < atoms.size();) {
    const Entry &entry = entries[atoms[n]];
    if (entry.parts.empty()) {
      ++n;
      continue;
    }
    atoms.erase(atoms.begin() + n);
    atoms.insert(atoms.begin() + n, entry.parts.begin(), entry.parts.end());
  }
}

void AtomSpace::resolve(Access &access) const {
  for (Atoms &atoms : access)
    resolve(atoms);
}

std::optional<SmallVector<Atoms>> AtomSpace::cut(Atoms atoms, ArrayRef<Extent> extents, bool maySplit) {
  resolve(atoms);
  SmallVector<Atoms> lists(extents.size());
  // Both sides from the left and from the right as far as they agree; what is
  // left in the middle is cut by division. Extents of 1 get no atoms.
  SmallVector<unsigned> open;
  for (auto [n, extent] : llvm::enumerate(extents))
    if (!extent.isOne())
      open.push_back(n);
  size_t first = 0, last = atoms.size(), firstOpen = 0, lastOpen = open.size();
  SmallVector<std::pair<unsigned, SmallVector<std::pair<unsigned, Extent>>>> splits;
  while (first < last && firstOpen < lastOpen) {
    if (lastOpen - firstOpen == 1) { // the products are equal, so the last one takes the rest
      for (; first < last; ++first)
        lists[open[firstOpen]].push_back(atoms[first]);
      ++firstOpen;
      break;
    }
    if (getExtent(atoms[first]) == extents[open[firstOpen]]) {
      lists[open[firstOpen++]] = {atoms[first++]};
      continue;
    }
    if (getExtent(atoms[last - 1]) == extents[open[lastOpen - 1]]) {
      lists[open[--lastOpen]] = {atoms[--last]};
      continue;
    }
    if (last - first == 1) { // one atom for several extents
      if (!maySplit)
        return std::nullopt;
      Atoms parts;
      for (size_t n = firstOpen; n < lastOpen; ++n) {
        Atoms part = add(extents[open[n]]);
        lists[open[n]] = part;
        llvm::append_range(parts, part);
      }
      entries[atoms[first]].parts = parts;
      ++first;
      firstOpen = lastOpen;
      break;
    }
    // Several of both: the leading extent takes atoms until it is used up.
    Extent rest = extents[open[firstOpen]];
    bool done = false;
    while (first < last && !done) {
      if (getExtent(atoms[first]) == rest) {
        lists[open[firstOpen]].push_back(atoms[first++]);
        done = true;
      } else if (std::optional<Extent> quotient = rest.dividedBy(getExtent(atoms[first]))) {
        lists[open[firstOpen]].push_back(atoms[first++]);
        rest = *quotient;
      } else if (std::optional<Extent> minor = getExtent(atoms[first]).dividedBy(rest); minor && maySplit) {
        Atoms major = add(rest), remaining = add(*minor);
        Atoms parts = major;
        llvm::append_range(parts, remaining);
        entries[atoms[first]].parts = parts;
        llvm::append_range(lists[open[firstOpen]], major);
        atoms[first] = remaining.front();
        done = true;
      } else {
        return std::nullopt;
      }
    }
    if (!done)
      return std::nullopt;
    ++firstOpen;
  }
  if (first != last || firstOpen != lastOpen)
    return std::nullopt;
  return lists;
}

SmallVector<Atoms> AtomSpace::loopAtoms(linalg::LinalgOp op, const Access &access) {
  SmallVector<Atoms> loops(op.getNumLoops());
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (auto [expr, atoms] : llvm::zip_equal(map.getResults(), access))
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = atoms;
  return loops;
}

std::optional<Access> AtomSpace::operandAccess(AffineMap operandMap, ArrayRef<Atoms> loops) {
  Access access;
  for (AffineExpr expr : operandMap.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      access.push_back(loops[dim.getPosition()]);
    else if (auto constant = dyn_cast<AffineConstantExpr>(expr); constant && constant.getValue() == 0)
      access.push_back({});
    else
      return std::nullopt;
  }
  return access;
}

bool AtomSpace::stepUp(Value &value, Access &access) {
  Operation *op = value.getDefiningOp();
  resolve(access);
  if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op)) {
    // A cut that fails half-way may leave atoms split: harmless, parts are as good as the whole.
    Access source(collapse.getSrcType().getRank());
    for (auto [dim, group] : llvm::enumerate(collapse.getReassociationIndices())) {
      SmallVector<Extent> extents;
      for (int64_t n : group)
        extents.push_back(Extent::of(collapse.getSrc(), n));
      std::optional<SmallVector<Atoms>> lists = cut(access[dim], extents);
      if (!lists)
        return false;
      for (auto [n, atoms] : llvm::zip_equal(group, *lists))
        source[n] = atoms;
      resolve(access); // an atom can stand in several dimensions' lists
      resolve(source);
    }
    value = collapse.getSrc();
    access = source;
    return true;
  }
  if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op)) {
    Access source(expand.getSrcType().getRank());
    for (auto [dim, group] : llvm::enumerate(expand.getReassociationIndices()))
      for (int64_t n : group)
        llvm::append_range(source[dim], access[n]);
    value = expand.getSrc();
    access = source;
    return true;
  }
  if (auto cast = dyn_cast_or_null<tensor::CastOp>(op)) {
    if (!isa<RankedTensorType>(cast.getSource().getType()))
      return false;
    value = cast.getSource();
    return true;
  }
  if (auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op)) {
    OpOperand *moved = getMovedInput(linalgOp);
    if (!moved)
      return false;
    std::optional<Access> source = readInput(*moved, access);
    if (!source)
      return false;
    value = moved->get();
    access = *source;
    return true;
  }
  return false;
}

std::optional<Access> AtomSpace::readInput(OpOperand &input, Access result) const {
  auto op = cast<linalg::LinalgOp>(input.getOwner());
  resolve(result);
  return operandAccess(op.getMatchingIndexingMap(&input), loopAtoms(op, result));
}

//===----------------------------------------------------------------------===//
// Concatenations
//===----------------------------------------------------------------------===//

bool isWholeBeside(OffsetSizeAndStrideOpInterface slice, Value whole, int64_t dim) {
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets(), sizes = slice.getMixedSizes();
  return slice.hasUnitStride() && llvm::all_of(llvm::seq<int64_t>(offsets.size()), [&](int64_t n) {
           return n == dim || (isConstantIntValue(offsets[n], 0) && Extent::of(sizes[n]) == Extent::of(whole, n));
         });
}

SmallVector<ConcatPart> concatParts(Value value, int64_t dim) {
  SmallVector<ConcatPart> parts;
  auto type = cast<RankedTensorType>(value.getType());
  auto insert = value.getDefiningOp<tensor::InsertSliceOp>();
  for (; insert; insert = insert.getDest().getDefiningOp<tensor::InsertSliceOp>()) {
    RankedTensorType part = insert.getSourceType();
    if (part.getRank() != type.getRank() || part.isDynamicDim(dim) || insert.isDynamicOffset(dim) ||
        !isWholeBeside(insert, value, dim))
      return {};
    parts.push_back({insert.getSource(), insert.getStaticOffset(dim), part.getDimSize(dim)});
  }
  llvm::sort(parts, [](const ConcatPart &a, const ConcatPart &b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const ConcatPart &part : parts) {
    if (part.offset != end)
      return {};
    end += part.size;
  }
  return end == type.getDimSize(dim) ? parts : SmallVector<ConcatPart>();
}

} // namespace attn
