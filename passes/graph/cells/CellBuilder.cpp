#include "passes/graph/cells/CellBuilder.h"

#include "passes/graph/Structured.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {

/// The elements of a small constant, or null.
static DenseElementsAttr elementsOf(Value value) {
  DenseElementsAttr elements;
  return matchPattern(value, m_Constant(&elements)) && elements.getElementType().isF32() ? elements
                                                                                         : DenseElementsAttr();
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// Fills `inputs` (or `projected`) and `recurrence`. Each gate must have one product with each.
bool CellBuilder::sortTerms(const CellMatch &cell, Value state) {
  inputs.clear();
  projected.assign(cell.gates.size(), {});
  recurrence = {state, {}};
  bool hasColumns = false;
  state = rootOf(state);
  for (size_t n = 0; n < cell.gates.size(); ++n) {
    const Gate &gate = cell.gates[n];
    SmallVector<GateTerm> terms(gate.terms.begin(), gate.terms.end());
    bool isCandidate = cell.cell == RecurrentLayer::Gru && n == 2;
    if (isCandidate && cell.reset)
      llvm::append_range(terms, cell.reset->terms);
    for (const GateTerm &term : terms) {
      Value input = rootOf(term.input);
      // The candidate's product with the state is the one behind the reset gate.
      bool isReset = isCandidate && (cell.reset ? input == state : term.input == cell.resetState);
      if (isCandidate && !isReset && input == state)
        return false;
      if (!term.weight) {
        projected[n].push_back({input, term.firstUnit});
        hasColumns = true;
      } else if (isReset || (!isCandidate && input == state)) {
        recurrence.terms.push_back(term);
      } else {
        auto *column = llvm::find_if(inputs, [&](Column &known) { return rootOf(known.input) == input; });
        if (column == inputs.end()) {
          inputs.push_back({term.input, {}});
          column = &inputs.back();
        }
        column->terms.push_back(term);
      }
    }
    auto isWhole = [&](Column &column) {
      return column.terms.size() == n + 1 && column.terms.back().size == column.terms.front().size;
    };
    if (!isWhole(recurrence) || (!hasColumns && inputs.empty()) || !llvm::all_of(inputs, isWhole))
      return false;
  }
  // What the reset gate shuts is the state's product alone.
  if (recurrence.terms.front().size != units || (cell.reset && cell.reset->terms.size() != 1))
    return false;
  bool isPlain = isSmall(inputs) || areStored(inputs);
  return (!hasColumns && isPlain) || projectInputs();
}

/// Takes products with inputs as they are, beside what is projected already.
bool CellBuilder::projectInputs() {
  for (Column &column : inputs)
    for (auto [gate, term] : llvm::enumerate(column.terms)) {
      // A part of a concatenation has no product of its own.
      if (cast<RankedTensorType>(term.input.getType()).getShape().back() !=
          cast<RankedTensorType>(term.weight.getType()).getDimSize(1 - term.unitDim))
        return false;
      projected[gate].push_back({term.product->getResult(0), term.firstUnit});
    }
  inputs.clear();
  return llvm::none_of(projected, [](ArrayRef<CellElement> parts) { return parts.empty(); });
}

/// Whether all weights have their elements in the IR.
bool CellBuilder::isSmall(ArrayRef<Column> columns) {
  return llvm::all_of(columns, [](const Column &column) {
    return llvm::all_of(column.terms, [](const GateTerm &term) { return bool(elementsOf(term.weight)); });
  });
}

/// Whether all weights are globals.
bool CellBuilder::areStored(ArrayRef<Column> columns) {
  return llvm::all_of(columns, [](const Column &column) {
    return llvm::all_of(column.terms, [](const GateTerm &term) { return bool(term.weight.getDefiningOp<WeightOp>()); });
  });
}

/// [rows, columns] of a tensor with more or fewer dimensions for its rows.
Value CellBuilder::flatten(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<ReassociationIndices> groups(2);
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    groups[dim + 1 == type.getRank()].push_back(dim);
  if (type.getRank() == 1)
    return tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get({1, type.getDimSize(0)}, type.getElementType()),
                                         value, ArrayRef<ReassociationIndices>{{0, 1}});
  return type.getRank() == 2 ? value : tensor::CollapseShapeOp::create(b, loc, value, groups).getResult();
}

/// [rows, columns] as [1, rows, columns].
static Value asStep(OpBuilder &b, Location loc, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, value);
  sizes.insert(sizes.begin(), b.getIndexAttr(1));
  SmallVector<ReassociationIndices> groups{{0, 1}, {2}};
  auto wide = RankedTensorType::get({1, type.getDimSize(0), type.getDimSize(1)}, type.getElementType());
  return tensor::ExpandShapeOp::create(b, loc, wide, value, groups, sizes);
}

/// The gates side by side, each the sum of what it has of its input.
Value CellBuilder::projectedInput() {
  Value first = projected.front().front().value;
  auto isInPlace = [&](auto gate) {
    return gate.value().size() == 1 &&
           gate.value().front() == CellElement{first, static_cast<int64_t>(gate.index()) * units};
  };
  int64_t columns = projected.size() * units;
  Value flat = flatten(first);
  if (llvm::all_of(llvm::enumerate(projected), isInPlace) &&
      cast<RankedTensorType>(flat.getType()).getDimSize(1) == columns)
    return asStep(b, loc, flat);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, flat);
  sizes[1] = b.getIndexAttr(columns);
  Value all = emptyTensor(b, loc, sizes, b.getF32Type());
  int64_t column = 0;
  for (ArrayRef<CellElement> elements : projected) {
    Value sum;
    for (const CellElement &element : elements) {
      Value columns =
          sliceAlong(b, loc, flatten(element.value), 1, b.getIndexAttr(element.column), b.getIndexAttr(units));
      sum = sum ? add(sum, columns) : columns;
    }
    all = insertAlong(b, loc, sum, all, 1, b.getIndexAttr(column));
    column += units;
  }
  return asStep(b, loc, all);
}

/// The inputs side by side.
Value CellBuilder::inputOf() {
  if (inputs.empty())
    return projectedInput();
  Value first = flatten(inputs.front().input);
  if (inputs.size() == 1)
    return asStep(b, loc, first);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, first);
  int64_t width = 0;
  for (const Column &column : inputs)
    width += column.terms.front().size;
  sizes[1] = b.getIndexAttr(width);
  Value all = emptyTensor(b, loc, sizes, getElementTypeOrSelf(first));
  int64_t offset = 0;
  for (const Column &column : inputs) {
    Value part = flatten(column.input);
    auto wanted = RankedTensorType::get(
        {cast<RankedTensorType>(all.getType()).getDimSize(0), column.terms.front().size}, getElementTypeOrSelf(part));
    all = insertAlong(b, loc, castTo(b, loc, part, wanted), all, 1, b.getIndexAttr(offset));
    offset += column.terms.front().size;
  }
  return asStep(b, loc, all);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

FlatSymbolRefAttr CellBuilder::derive(StringRef name, ArrayRef<int64_t> shape, Attribute expression) {
  return globals.get(name, RankedTensorType::get(shape, b.getF32Type()), expression, loc);
}

/// [1, gates * units, inputs], from parts of constants.
Value CellBuilder::weightOf(ArrayRef<Column> columns) {
  int64_t gates = columns.front().terms.size(), width = 0;
  for (const Column &column : columns)
    width += column.terms.front().size;
  auto type = RankedTensorType::get({1, gates * units, width}, b.getF32Type());
  if (!areStored(columns))
    return smallWeightOf(columns, type);
  MLIRContext *context = b.getContext();
  SmallVector<FlatSymbolRefAttr> rows;
  std::string name;
  for (int64_t gate = 0; gate < gates; ++gate) {
    SmallVector<FlatSymbolRefAttr> parts;
    for (const Column &column : columns) {
      const GateTerm &term = column.terms[gate];
      auto weight = term.weight.getDefiningOp<WeightOp>();
      SmallVector<int64_t> shape(cast<RankedTensorType>(weight.getType()).getShape());
      auto source = FlatSymbolRefAttr::get(weight.getGlobalAttr().getAttr());
      name = weight.getGlobal();
      auto cut = [&](unsigned dim, int64_t first, int64_t size) {
        if (first == 0 && size == shape[dim])
          return;
        shape[dim] = size;
        source = derive(name + "_part", shape, SliceAttr::get(context, source, dim, first, size));
      };
      cut(term.unitDim, term.firstUnit, units);
      cut(1 - term.unitDim, term.first, term.size);
      if (term.unitDim == 1) {
        std::swap(shape[0], shape[1]);
        source = derive(name + "_turned", shape, TransposeAttr::get(context, source, {1, 0}));
      }
      parts.push_back(source);
    }
    rows.push_back(parts.size() == 1 ? parts[0]
                                     : derive(name + "_gate", {units, width}, ConcatAttr::get(context, parts, 1)));
  }
  FlatSymbolRefAttr all =
      rows.size() == 1 ? rows[0] : derive(name + "_gates", {gates * units, width}, ConcatAttr::get(context, rows, 0));
  all = derive(name + "_cell", type.getShape(), ReshapeAttr::get(context, all));
  return WeightOp::create(b, loc, type, all);
}

/// The same of constants whose elements are in the IR.
Value CellBuilder::smallWeightOf(ArrayRef<Column> columns, RankedTensorType type) {
  int64_t width = type.getDimSize(2), offset = 0;
  SmallVector<float> values(type.getNumElements());
  for (const Column &column : columns) {
    for (auto [gate, term] : llvm::enumerate(column.terms)) {
      DenseElementsAttr elements = elementsOf(term.weight);
      auto all = elements.getValues<float>();
      int64_t stride = elements.getType().getDimSize(1);
      for (int64_t unit = 0; unit < units; ++unit)
        for (int64_t n = 0; n < term.size; ++n) {
          int64_t row = term.firstUnit + unit, k = term.first + n;
          values[(gate * units + unit) * width + offset + n] =
              all[term.unitDim == 0 ? row * stride + k : k * stride + row];
        }
    }
    offset += column.terms.front().size;
  }
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(values)));
}

/// The sum of constants for each unit; null for none.
Value CellBuilder::sumOf(ArrayRef<GateBias> biases) {
  auto type = RankedTensorType::get({units}, b.getF32Type());
  Value sum;
  SmallVector<float> known(units, 0);
  bool hasKnown = false;
  for (const GateBias &bias : biases) {
    if (!bias.vector || elementsOf(bias.vector)) {
      hasKnown = true;
      for (int64_t n = 0; n < units; ++n)
        known[n] += bias.vector ? elementsOf(bias.vector).getValues<float>()[bias.first + n] : float(bias.number);
      continue;
    }
    Value vector = bias.vector;
    if (int64_t rank = cast<RankedTensorType>(vector.getType()).getRank(); rank > 1)
      vector = tensor::CollapseShapeOp::create(b, loc, vector,
                                               ReassociationIndices(llvm::to_vector_of<int64_t>(llvm::seq(rank))));
    Value part = sliceAlong(b, loc, vector, 0, b.getIndexAttr(bias.first), b.getIndexAttr(units));
    sum = sum ? add(sum, part) : part;
  }
  if (!hasKnown)
    return sum;
  Value constant = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(known)));
  return sum ? add(sum, constant) : constant;
}

Value CellBuilder::add(Value first, Value second) {
  AffineMap identity = b.getMultiDimIdentityMap(cast<RankedTensorType>(first.getType()).getRank());
  return elementwise(b, loc, tensor::getMixedSizes(b, loc, first), b.getF32Type(), {first, second},
                     {identity, identity}, [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       return arith::AddFOp::create(b, loc, args[0], args[1]);
                     });
}

/// [1, 2 * gates * units]: those beside the input's product, then those beside the state's; null for none.
Value CellBuilder::biasOf(const CellMatch &cell) {
  int64_t gates = cell.gates.size();
  SmallVector<Value> parts(2 * gates);
  for (auto [n, gate] : llvm::enumerate(cell.gates))
    parts[n] = sumOf(gate.biases);
  if (cell.reset)
    parts[2 * gates - 1] = sumOf(cell.reset->biases);
  if (llvm::none_of(parts, [](Value part) { return bool(part); }))
    return {};
  auto type = RankedTensorType::get({1, 2 * gates * units}, b.getF32Type());
  SmallVector<float> known(type.getNumElements(), 0);
  for (auto [n, part] : llvm::enumerate(parts))
    if (part && elementsOf(part))
      llvm::copy(elementsOf(part).getValues<float>(), known.begin() + n * units);
  Value all = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(known)));
  for (auto [n, part] : llvm::enumerate(parts))
    if (part && !elementsOf(part))
      all = tensor::InsertSliceOp::create(b, loc, part, all, ValueRange(), ValueRange(), ValueRange(),
                                          ArrayRef<int64_t>{0, static_cast<int64_t>(n) * units},
                                          ArrayRef<int64_t>{1, units}, ArrayRef<int64_t>{1, 1});
  return all;
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

/// What `op` gives becomes `state`, of shape [1, rows, units].
void CellBuilder::replace(linalg::LinalgOp op, Value state) {
  Value old = op->getResult(0);
  auto type = cast<RankedTensorType>(old.getType());
  Value value = tensor::CollapseShapeOp::create(b, loc, state, ArrayRef<ReassociationIndices>{{0, 1}, {2}});
  if (type.getRank() > 2) {
    SmallVector<ReassociationIndices> groups(2);
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      groups[dim + 1 == type.getRank()].push_back(dim);
    RankedTensorType flat = tensor::CollapseShapeOp::inferCollapsedType(type, groups);
    value = castTo(b, loc, value, flat);
    value =
        tensor::ExpandShapeOp::create(b, loc, type, value, groups, tensor::getMixedSizes(b, loc, op.getDpsInits()[0]));
  } else {
    value = castTo(b, loc, value, type);
  }
  b.replaceAllUsesWith(old, value);
}

bool CellBuilder::build(CellMatch &cell, Value state) {
  units = cell.units;
  if (!sortTerms(cell, state) || !(areStored(recurrence) || isSmall(recurrence)))
    return false;

  loc = cell.result.getLoc();
  b.setInsertionPoint(cell.result);
  auto type = cast<RankedTensorType>(cell.result->getResult(0).getType());
  Value input = inputOf(), weight = inputs.empty() ? Value() : weightOf(inputs), recurrent = weightOf(recurrence),
        bias = biasOf(cell);
  Value initial = asStep(b, loc, flatten(state));
  int64_t rows = cast<RankedTensorType>(input.getType()).getDimSize(1);
  auto last = RankedTensorType::get({1, rows, units}, type.getElementType());
  auto sequence = RankedTensorType::get({1, 1, rows, units}, type.getElementType());
  SmallVector<Attribute> activations(cell.activations.begin(), cell.activations.end());
  ArrayAttr functions = b.getArrayAttr(activations);
  if (cell.cell == RecurrentLayer::Lstm) {
    auto op = LstmOp::create(b, loc, TypeRange{sequence, last, last}, input, weight, recurrent, bias, Value(), initial,
                             asStep(b, loc, flatten(cell.before)), Value(), false, Direction::forward, functions,
                             FloatAttr(), false);
    replace(cell.result, op.getLastH());
    SmallVector<Operation *> readers(cell.memory->getUsers());
    replace(cell.memory, op.getLastC());
    // What reads the new cell may stand before the new state.
    Block *block = cell.result->getBlock();
    auto isEarly = [&](Operation *user) { return block->findAncestorOpInBlock(*user)->isBeforeInBlock(cell.result); };
    if (llvm::any_of(readers, isEarly))
      sortTopologically(block);
  } else if (cell.cell == RecurrentLayer::Gru) {
    auto op = GruOp::create(b, loc, TypeRange{sequence, last}, input, weight, recurrent, bias, Value(), initial,
                            cell.reset.has_value(), cell.mirrored, Direction::forward, functions, FloatAttr(), false);
    replace(cell.result, op.getLastH());
  } else {
    auto op = RnnOp::create(b, loc, TypeRange{sequence, last}, input, weight, recurrent, bias, Value(), initial,
                            Direction::forward, functions, FloatAttr(), false);
    replace(cell.result, op.getLastH());
  }
  return true;
}

} // namespace attn
