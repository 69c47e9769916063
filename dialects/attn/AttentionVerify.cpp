#include "dialects/attn/AttnOps.h"
#include "dialects/attn/MaskTerms.h"
#include "dialects/attn/ScoreKinds.h"

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

// verify() of attn.attention: the constraints C1..C14 of its description.

using namespace mlir;
using namespace attn;

namespace {

using Dim = AttentionOp::Dim;
constexpr unsigned kDims = AttentionOp::kDims;
constexpr StringLiteral kDimNames = "bhijde";
/// Sums of a few of these and of sizes of tensors stay far from overflow.
constexpr int64_t kMaxBound = int64_t(1) << 40;

template <typename T> std::string text(T object) {
  std::string s;
  llvm::raw_string_ostream(s) << object;
  return s;
}

/// "b, h"; "nothing" for no dimension.
std::string listDims(ArrayRef<unsigned> dims) {
  std::string text;
  for (unsigned dim : dims)
    text += (text.empty() ? "" : ", ") + std::string(1, kDimNames[dim]);
  return text.empty() ? "nothing" : text;
}

/// One operand or result with its map.
struct Role {
  enum Kind { Query, Key, Value, Alignment, Capture, MaskOperand, Result, Extra };
  Kind kind;
  unsigned number; ///< among captures, mask operands, extra results
  mlir::Value value;
  AffineMap map;
  std::string name;
  bool isResult() const { return kind >= Result; }
};

class Verifier {
public:
  explicit Verifier(AttentionOp op) : op(op) {}
  LogicalResult verify();

private:
  LogicalResult verifyKind();
  LogicalResult verifyMaskTerms();
  LogicalResult verifyExtraList();
  void collectRoles();
  LogicalResult verifyElements();
  LogicalResult verifyMapForm(const Role &role);
  LogicalResult verifyMapResults(const Role &role);
  LogicalResult verifyNames(const Role &role, ArrayRef<unsigned> must, ArrayRef<unsigned> mustNot);
  LogicalResult verifyRoleNames(const Role &role);
  LogicalResult verifyBatchNames();
  LogicalResult verifySizes();
  LogicalResult verifyAxes(ArrayAttr axes, ArrayRef<int64_t> sizes);
  LogicalResult verifyMaskElement(const Role &role);
  LogicalResult verifyExtra(const Role &role);

  /// The term to which mask operand `n` belongs.
  Attribute termOf(unsigned n) const { return operandTerms[n]; }
  /// Dimensions that the map of `role` has less than its type.
  int64_t missingResults(const Role &role) {
    return (role.kind == Role::MaskOperand && isa<BlocksAttr>(termOf(role.number))) ||
           (role.kind == Role::Extra && op.getExtra(role.number).isTopK());
  }

  AttentionOp op;
  SmallVector<Attribute> operandTerms; ///< by mask operand
  SmallVector<Role> roles;
};

// C7
LogicalResult Verifier::verifyKind() {
  StringRef kind = stringifyScoreKind(op.getKind());
  ScoreFormula formula = getScoreFormula(op.getKind());
  if (bool(op.getKey()) != formula.hasKey)
    return op.emitOpError("expects ") << (formula.hasKey ? "a key" : "no key") << " with kind " << kind << ", got "
                                      << (op.getKey() ? "one" : "none");
  if (bool(op.getAlignment()) != formula.hasAlignment)
    return op.emitOpError("expects ") << (formula.hasAlignment ? "an" : "no") << " alignment with kind " << kind
                                      << ", got " << (op.getAlignment() ? "one" : "none");
  if (!op.getActivation().empty() && !formula.hasAlignment)
    return op.emitOpError("expects no activation region with kind ") << kind << ", got one";
  // C12
  if (!op.getMasked().empty() && op.getMaskedRows() != MaskedRows::finite)
    return op.emitOpError("expects no masked region with masked_rows ")
           << stringifyMaskedRows(op.getMaskedRows()) << ", got one";
  if (op.getNormalizer() == Normalizer::none && op.getMaskedRows() != MaskedRows::zero)
    return op.emitOpError("expects masked_rows zero without normalizer, got ")
           << stringifyMaskedRows(op.getMaskedRows());
  // C13
  if (std::optional<Type> type = op.getSoftmaxType()) {
    if (!isa<FloatType>(*type))
      return op.emitOpError("expects softmax_type to be a float type, got ") << *type;
    if (op.getNormalizer() != Normalizer::softmax)
      return op.emitOpError("expects no softmax_type with normalizer ")
             << stringifyNormalizer(op.getNormalizer()) << ", got " << *type;
  }
  return success();
}

// C8
LogicalResult Verifier::verifyMaskTerms() {
  for (Attribute term : op.getMask()) {
    if (!isMaskTerm(term))
      return op.emitOpError("expects mask terms in mask, got ") << term;
    if (takesMaskOperand(term))
      operandTerms.push_back(term);
    // C10
    SmallVector<int64_t, 2> sizes;
    if (auto blocks = dyn_cast<BlocksAttr>(term))
      sizes = {blocks.getRows(), blocks.getColumns()};
    for (const KeyBound &bound : getKeyBounds(term)) {
      if (bound.offset < -kMaxBound || bound.offset > kMaxBound)
        return op.emitOpError("expects bounds of a mask term in [-2^40, 2^40], got ") << term;
      sizes.push_back(bound.step);
    }
    for (int64_t size : sizes)
      if (size < 1 || size > kMaxBound)
        return op.emitOpError("expects blocks of a size in [1, 2^40], got ") << term;
  }
  if (operandTerms.size() != op.getMaskOperands().size())
    return op.emitOpError("expects ") << operandTerms.size() << " mask operands for the terms that take one, got "
                                      << op.getMaskOperands().size();
  return success();
}

// C11
LogicalResult Verifier::verifyExtraList() {
  for (Attribute extra : op.getExtras())
    if (!isa<ExtraAttr>(extra))
      return op.emitOpError("expects #attn.extra in extras, got ") << extra;
  if (op.getExtras().size() != op.getExtraResults().size())
    return op.emitOpError("expects ") << op.getExtras().size() << " extra results, got " << op.getExtraResults().size();
  return success();
}

void Verifier::collectRoles() {
  auto add = [&](Role::Kind kind, mlir::Value value, const Twine &name, unsigned number = 0) {
    roles.push_back({kind, number, value, op.getMap(roles.size()), name.str()});
  };
  add(Role::Query, op.getQuery(), "query");
  if (op.getKey())
    add(Role::Key, op.getKey(), "key");
  add(Role::Value, op.getValue(), "value");
  if (op.getAlignment())
    add(Role::Alignment, op.getAlignment(), "alignment");
  for (auto [n, capture] : llvm::enumerate(op.getCaptures()))
    add(Role::Capture, capture, "capture " + Twine(n), n);
  for (auto [n, operand] : llvm::enumerate(op.getMaskOperands()))
    add(Role::MaskOperand, operand, "mask operand " + Twine(n), n);
  add(Role::Result, op.getResult(), "result");
  for (auto [n, extra] : llvm::enumerate(op.getExtraResults()))
    add(Role::Extra, extra, "extra result " + Twine(n), n);
}

// C1
LogicalResult Verifier::verifyElements() {
  Type element = getElementTypeOrSelf(op.getQuery());
  for (const Role &role : roles) {
    if (role.kind == Role::Capture || role.kind == Role::MaskOperand || role.kind == Role::Extra)
      continue;
    Type other = getElementTypeOrSelf(role.value);
    if (!isa<FloatType>(other) || other != element)
      return op.emitOpError("expects query, key, value and result to have one float element type, got ")
             << element << " for query and " << other << " for " << role.name;
  }
  return success();
}

// C2
LogicalResult Verifier::verifyMapForm(const Role &role) {
  int64_t rank = cast<RankedTensorType>(role.value.getType()).getRank() - missingResults(role);
  if (rank < 0)
    return op.emitOpError("expects ") << role.name << " to have a last dimension of its own, got "
                                      << role.value.getType();
  if (role.map.getNumDims() != kDims || role.map.getNumSymbols() != 0 || role.map.getNumResults() != rank)
    return op.emitOpError("expects the map of ")
           << role.name << " to have 6 dimensions, no symbols and " << rank << " results, got " << text(role.map);
  return success();
}

// C3
LogicalResult Verifier::verifyMapResults(const Role &role) {
  unsigned seen = 0;
  BlocksAttr blocks = role.kind == Role::MaskOperand ? dyn_cast<BlocksAttr>(termOf(role.number)) : BlocksAttr();
  for (AffineExpr expr : role.map.getResults()) {
    std::optional<unsigned> named;
    if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
      if (constant.getValue() == 0)
        continue;
    } else if (auto binary = dyn_cast<AffineBinaryOpExpr>(expr)) {
      auto dim = dyn_cast<AffineDimExpr>(binary.getLHS());
      auto divisor = dyn_cast<AffineConstantExpr>(binary.getRHS());
      if (binary.getKind() == AffineExprKind::FloorDiv && dim && divisor && divisor.getValue() > 1) {
        if (role.isResult())
          return op.emitOpError("expects no floordiv in the map of the result, got ") << text(role.map);
        if (dim.getPosition() == Dim::H || (blocks && dim.getPosition() == Dim::I))
          named = dim.getPosition();
      }
    } else if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      named = dim.getPosition();
    }
    if (!named)
      return op.emitOpError("expects each result of the map of ")
             << role.name << " to be a dimension, h floordiv c with c > 1 or 0, got " << text(expr) << " in "
             << text(role.map);
    if (blocks && *named == Dim::I && AttentionOp::getDivisor(expr) != blocks.getRows())
      return op.emitOpError("expects the map of ")
             << role.name << " to name i floordiv " << blocks.getRows() << ", got " << text(role.map);
    if (seen & (1u << *named))
      return op.emitOpError("expects the map of ")
             << role.name << " to name " << kDimNames[*named] << " at most once, got " << text(role.map);
    seen |= 1u << *named;
  }
  return success();
}

// C4
LogicalResult Verifier::verifyNames(const Role &role, ArrayRef<unsigned> must, ArrayRef<unsigned> mustNot) {
  auto named = [&](unsigned dim) { return AttentionOp::names(role.map, dim); };
  if (llvm::all_of(must, named) && llvm::none_of(mustNot, named))
    return success();
  InFlightDiagnostic diag = op.emitOpError("expects the map of ") << role.name << " to name ";
  if (!must.empty())
    diag << listDims(must) << (mustNot.empty() ? "" : " and ");
  if (!mustNot.empty())
    diag << "none of " << listDims(mustNot);
  return diag << ", got " << text(role.map);
}

LogicalResult Verifier::verifyRoleNames(const Role &role) {
  using D = AttentionOp;
  switch (role.kind) {
  case Role::Query:
    return verifyNames(role, getScoreFormula(op.getKind()).getQueryDims(), {op.getKey() ? D::J : D::D, D::E});
  case Role::Key:
    return verifyNames(role, {D::J, D::D}, {D::I, D::E});
  case Role::Value:
    return verifyNames(role, {D::J, D::E}, {D::I, D::D});
  case Role::Alignment:
    return verifyNames(role, {D::D}, {D::B, D::I, D::J, D::E});
  case Role::Capture:
    return verifyNames(role, {}, {D::D, D::E});
  case Role::MaskOperand: // C9
    if (isa<DenseMaskAttr>(termOf(role.number)))
      return verifyNames(role, {}, {D::D, D::E});
    return verifyNames(role, {}, {D::J, D::D, D::E});
  case Role::Result:
    return verifyNames(role, {D::I, D::E}, {D::J, D::D});
  case Role::Extra: // C11
    return verifyExtra(role);
  }
  llvm_unreachable("all roles are handled");
}

LogicalResult Verifier::verifyBatchNames() {
  for (unsigned dim : {unsigned(Dim::B), unsigned(Dim::H)}) {
    bool operandNames =
        llvm::any_of(roles, [&](const Role &role) { return !role.isResult() && AttentionOp::names(role.map, dim); });
    if (operandNames != AttentionOp::names(op.getResultMap(), dim))
      return op.emitOpError("expects the result to name ")
             << kDimNames[dim] << " exactly when an operand does, got " << (operandNames ? "an operand" : "no operand")
             << " that names it and the result's map " << text(op.getResultMap());
  }
  return success();
}

// C5
LogicalResult Verifier::verifySizes() {
  int64_t sizes[kDims];
  const Role *from[kDims] = {};
  bool operandNames[kDims] = {};
  std::fill(std::begin(sizes), std::end(sizes), ShapedType::kDynamic);
  for (const Role &role : roles) {
    auto type = cast<RankedTensorType>(role.value.getType());
    for (auto [position, expr] : llvm::enumerate(role.map.getResults())) {
      int64_t size = type.getDimSize(position), divisor = AttentionOp::getDivisor(expr);
      std::optional<unsigned> dim = AttentionOp::getNamedDim(expr);
      bool isBlocks = divisor > 1 && dim && *dim == Dim::I;
      if (dim && !isBlocks)
        operandNames[*dim] |= !role.isResult();
      if (ShapedType::isDynamic(size)) {
        if (dim && role.isResult() && !operandNames[*dim])
          return op.emitOpError("expects a static size of ")
                 << kDimNames[*dim] << ", which no operand names, got " << type << " for " << role.name;
        continue;
      }
      if (!dim) {
        if (size != 1)
          return op.emitOpError("expects size 1 where the map of ")
                 << role.name << " is the constant 0, got " << size << " in dimension " << position;
        continue;
      }
      if (isBlocks)
        continue;
      if (llvm::MulOverflow(size, divisor, size))
        return op.emitOpError("expects sizes below 2^63, got ") << type << " for " << role.name;
      if (ShapedType::isDynamic(sizes[*dim])) {
        sizes[*dim] = size;
        from[*dim] = &role;
      } else if (sizes[*dim] != size) {
        return op.emitOpError("expects one size of ") << kDimNames[*dim] << ", got " << sizes[*dim] << " by "
                                                      << from[*dim]->name << " and " << size << " by " << role.name;
      }
    }
  }
  // The last block of queries may be short.
  for (const Role &role : roles)
    for (auto [position, expr] : llvm::enumerate(role.map.getResults())) {
      int64_t divisor = AttentionOp::getDivisor(expr);
      int64_t size = cast<RankedTensorType>(role.value.getType()).getDimSize(position);
      if (divisor == 1 || AttentionOp::getNamedDim(expr) != unsigned(Dim::I) || ShapedType::isDynamic(size) ||
          ShapedType::isDynamic(sizes[Dim::I]))
        continue;
      int64_t blocks = llvm::divideCeil(sizes[Dim::I], divisor);
      if (size != blocks)
        return op.emitOpError("expects ") << blocks << " blocks of queries for " << sizes[Dim::I] << " queries, got "
                                          << size << " by " << role.name;
    }
  return op.getAxesAttr() ? verifyAxes(op.getAxesAttr(), sizes) : success();
}

// C14
LogicalResult Verifier::verifyAxes(ArrayAttr axes, ArrayRef<int64_t> sizes) {
  int64_t product[kDims] = {1, 1, 1, 1, 1, 1};
  unsigned open[kDims] = {};
  SmallVector<unsigned> found, named;
  auto last = WeightsAxis::batch;
  for (Attribute attr : axes) {
    auto part = dyn_cast<AxisPartAttr>(attr);
    bool isOpen = part && ShapedType::isDynamic(part.getSize());
    if (!part || part.getDim() > Dim::J || (!isOpen && part.getSize() < 1))
      return op.emitOpError("expects parts of dimensions 0 to 3 with positive sizes in axes, got ") << attr;
    if (part.getAxis() < last)
      return op.emitOpError("expects axes in the order batch, head, query, key, got ") << axes;
    last = part.getAxis();
    if (!llvm::is_contained(found, part.getDim()))
      found.push_back(part.getDim());
    open[part.getDim()] += isOpen;
    if (!isOpen && llvm::MulOverflow(product[part.getDim()], part.getSize(), product[part.getDim()]))
      return op.emitOpError("expects sizes below 2^63 in axes, got ") << attr;
  }
  for (unsigned dim : {Dim::B, Dim::H, Dim::I, Dim::J})
    if (op.isNamed(dim))
      named.push_back(dim);
  llvm::sort(found);
  if (found != named)
    return op.emitOpError("expects parts of ") << listDims(named) << " in axes, got " << listDims(found);
  for (unsigned dim : named) {
    bool divides = sizes[dim] % product[dim] == 0, isWhole = open[dim] || sizes[dim] == product[dim];
    if (open[dim] > 1 || (!ShapedType::isDynamic(sizes[dim]) && !(divides && isWhole)))
      return op.emitOpError("expects parts of ") << kDimNames[dim] << " that make up its size, one open, in axes";
  }
  return success();
}

// C9
LogicalResult Verifier::verifyMaskElement(const Role &role) {
  Type element = getElementTypeOrSelf(role.value);
  Attribute term = termOf(role.number);
  bool mayBeFloat = getMaskJoin(term) == MaskJoin::near && !dependsOnQuery(term);
  if (element.isInteger() || (!isa<DenseMaskAttr>(term) && element.isIndex()) ||
      (mayBeFloat && isa<FloatType>(element)))
    return success();
  return op.emitOpError("expects ") << (isa<DenseMaskAttr>(term) ? "integers"
                                        : mayBeFloat             ? "integers, index or floats"
                                                                 : "integers or index")
                                    << " for the operand of " << term << ", got " << element;
}

// C11
LogicalResult Verifier::verifyExtra(const Role &role) {
  ExtraAttr extra = op.getExtra(role.number);
  Reduction reduction = extra.getReduction();
  Type element = getElementTypeOrSelf(role.value);
  if (extra.isIndex() ? !element.isInteger() && !element.isIndex() : !isa<FloatType>(element))
    return op.emitOpError("expects ") << (extra.isIndex() ? "integers or index" : "floats") << " for " << extra
                                      << ", got " << element;
  bool isLse = extra.getSource() == ExtraSource::lse;
  if (isLse && (reduction != Reduction::none || op.getNormalizer() != Normalizer::softmax))
    return op.emitOpError("expects a softmax and no reduction for lse, got ")
           << stringifyNormalizer(op.getNormalizer()) << " and " << stringifyReduction(reduction);
  bool isFree = reduction == Reduction::sum || reduction == Reduction::mean || reduction == Reduction::max;
  bool overKeys = isLse || (reduction != Reduction::none && !isFree);
  SmallVector<unsigned> must, mustNot{Dim::D, Dim::E};
  for (unsigned dim : {Dim::B, Dim::H, Dim::I, Dim::J}) {
    // An extra result names what exists without it.
    bool exists = llvm::any_of(
        roles, [&](const Role &other) { return other.kind != Role::Extra && AttentionOp::names(other.map, dim); });
    if (!exists || (dim == Dim::J && overKeys))
      mustNot.push_back(dim);
    else if (!isFree)
      must.push_back(dim);
  }
  llvm::sort(mustNot);
  if (failed(verifyNames(role, must, mustNot)))
    return failure();
  auto type = cast<RankedTensorType>(role.value.getType());
  if (!extra.isTopK())
    return success();
  int64_t count = type.getShape().back();
  if (ShapedType::isDynamic(count) || count < 1)
    return op.emitOpError("expects a positive static last dimension for ") << extra << ", got " << type;
  auto value = cast<RankedTensorType>(op.getValue().getType());
  for (auto [position, expr] : llvm::enumerate(op.getValueMap().getResults()))
    if (AttentionOp::getNamedDim(expr) == unsigned(Dim::J) && !value.isDynamicDim(position) &&
        value.getDimSize(position) < count)
      return op.emitOpError("expects at most as many as there are keys (")
             << value.getDimSize(position) << ") for " << extra << ", got " << count;
  return success();
}

LogicalResult Verifier::verify() {
  if (failed(verifyKind()) || failed(verifyMaskTerms()) || failed(verifyExtraList()))
    return failure();
  // C2
  unsigned expected = op->getNumOperands() + op->getNumResults();
  if (op.getIndexingMaps().size() != expected)
    return op.emitOpError("expects ") << expected << " maps, one an operand and a result, got "
                                      << op.getIndexingMaps().size();
  collectRoles();
  if (failed(verifyElements()))
    return failure();
  for (const Role &role : roles)
    if (failed(verifyMapForm(role)))
      return failure();
  for (const Role &role : roles)
    if (failed(verifyMapResults(role)))
      return failure();
  for (const Role &role : roles)
    if (failed(verifyRoleNames(role)))
      return failure();
  if (failed(verifyBatchNames()))
    return failure();
  for (const Role &role : roles)
    if (role.kind == Role::MaskOperand && failed(verifyMaskElement(role)))
      return failure();
  return verifySizes();
}

} // namespace

LogicalResult AttentionOp::verify() { return Verifier(*this).verify(); }

// C6
LogicalResult AttentionOp::verifyRegions() {
  Type compute = getComputeType();
  SmallVector<Type> expected{compute};
  for (Value capture : getCaptures())
    expected.push_back(getElementTypeOrSelf(capture));
  struct Named {
    Region *region;
    StringRef name;
    bool takesCaptures;
  };
  for (Named named : {Named{&getScore(), "score", true}, Named{&getWeight(), "weight", true},
                      Named{&getActivation(), "activation", false}, Named{&getMasked(), "masked", true}}) {
    auto [region, name, takesCaptures] = named;
    if (region->empty() && region != &getScore())
      continue;
    if (!region->hasOneBlock())
      return emitOpError("expects one block in the ") << name << " region, got " << region->getBlocks().size();
    Block &block = region->front();
    TypeRange types = TypeRange(expected).take_front(takesCaptures ? expected.size() : 1);
    if (block.getArgumentTypes() != types)
      return emitOpError("expects the ") << name << " region to take " << types << ", got "
                                         << TypeRange(block.getArgumentTypes());
    auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
    if (!yield || yield.getValue().getType() != compute)
      return emitOpError("expects the ") << name << " region to end in an attn.yield of " << text(compute) << ", got "
                                         << (yield ? text(yield.getValue().getType()) : "no attn.yield");
    if (!takesCaptures)
      for (Operation &inner : block)
        if (isa<IndexOp>(inner))
          return emitOpError("expects no attn.index in the ") << name << " region, got one";
  }
  return success();
}
