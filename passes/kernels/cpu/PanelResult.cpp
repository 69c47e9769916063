#include "passes/kernels/cpu/PanelResult.h"
#include "passes/kernels/cpu/RegionVectorizer.h"

using namespace mlir;

namespace attn {

void PanelResult::takeOperands(KernelFunction &f, int64_t m) { operands = attn::takeOperands(f, spec, m, n); }

void PanelResult::forColumns(const Index &panel, function_ref<void(const PanelColumns &)> emitColumns) {
  PanelColumns whole{width, std::nullopt};
  if (ShapedType::isDynamic(n)) {
    PanelColumns open = openColumns(panel);
    return k.when(*open.left < width, [&] { emitColumns(open); }, [&] { emitColumns(whole); });
  }
  PanelColumns rest{n % width, std::nullopt};
  if (rest.count == 0)
    return emitColumns(whole);
  if (n < width)
    return emitColumns(rest);
  k.when(panel == n / width, [&] { emitColumns(rest); }, [&] { emitColumns(whole); });
}

/// How many of the columns of vector number `v` are there; nothing where all are.
std::optional<Index> PanelResult::leftIn(const PanelColumns &columns, int64_t v) const {
  int64_t first = v * lanes;
  if (columns.left) // of later vectors less than nothing, which is none
    return *columns.left - first;
  return columns.count - first < lanes ? std::optional(k.index(columns.count - first)) : std::nullopt;
}

Value PanelResult::read(EpilogueOperand kind, const Buffer &buffer, const Index &row, const Index &column,
                        const PanelColumns &columns, int64_t v) const {
  switch (kind) {
  case EpilogueOperand::Scalar:
    return buffer();
  case EpilogueOperand::RowVector:
    return load(buffer, columns, v, column);
  case EpilogueOperand::Column:
    return buffer(row);
  case EpilogueOperand::Full:
    return load(buffer, columns, v, row, column);
  }
  llvm_unreachable("covered switch");
}

SmallVector<Value> PanelResult::readShared(const Index &panel, const PanelColumns &columns, int64_t v) const {
  SmallVector<Value> values;
  for (auto [kind, buffer] : llvm::zip(spec.operands, operands)) {
    bool isShared = kind == EpilogueOperand::Scalar || kind == EpilogueOperand::RowVector;
    values.push_back(isShared ? read(kind, buffer, Index(), panel * width + v * lanes, columns, v) : Value());
  }
  return values;
}

void PanelResult::store(const Vec &sum, const Index &row, const Index &panel, const PanelColumns &columns, int64_t v,
                        ArrayRef<Value> shared) {
  Index column = panel * width + v * lanes;
  Vec result = sum;
  if (spec.epilogue) {
    SmallVector<Value> values(shared);
    values.resize(operands.size());
    for (auto [value, kind, buffer] : llvm::zip_equal(values, spec.operands, operands))
      if (!value)
        value = read(kind, buffer, row, column, columns, v);
    result = k.asVec(vectorizeBlock(k.b, *spec.epilogue, spec.getArguments(values, sum), lanes));
  }
  if (Type element = c.memref().getElementType(); result.element() != element)
    result = convert(result, element);
  if (std::optional<Index> left = leftIn(columns, v))
    c.setFirst(result, *left, row, column);
  else
    c.setVector(result, row, column);
}

} // namespace attn
