#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/State.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <utility>

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

//===----------------------------------------------------------------------===//
// DType, Tensor
//===----------------------------------------------------------------------===//

bool attn::onnx::isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::F16 || dtype == DType::BF16;
}

bool attn::onnx::isNarrowFloat(DType dtype) { return dtype >= DType::F8E4M3FN && dtype <= DType::F4E2M1; }
bool attn::onnx::isNarrow(DType dtype) { return dtype >= DType::F8E4M3FN; }

bool attn::onnx::isSigned(DType dtype) {
  return isFloat(dtype) || dtype == DType::I2 || dtype == DType::I4 || dtype == DType::I8 || dtype == DType::I16 ||
         dtype == DType::I32 || dtype == DType::I64;
}

StringRef attn::onnx::dtypeName(DType dtype) {
  static constexpr StringLiteral names[] = {"float32",
                                            "float64",
                                            "float16",
                                            "bfloat16",
                                            "int8",
                                            "int16",
                                            "int32",
                                            "int64",
                                            "uint8",
                                            "uint16",
                                            "uint32",
                                            "uint64",
                                            "bool",
                                            "float8_e4m3fn",
                                            "float8_e4m3fnuz",
                                            "float8_e5m2",
                                            "float8_e5m2fnuz",
                                            "float8_e8m0fnu",
                                            "float4_e2m1fn",
                                            "int4",
                                            "uint4",
                                            "int2",
                                            "uint2"};
  return names[unsigned(dtype)];
}

int64_t attn::onnx::dtypeBytes(DType dtype) {
  static constexpr int64_t bytes[] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return bytes[unsigned(dtype)];
}

int64_t attn::onnx::dtypeBits(DType dtype) {
  switch (dtype) {
  case DType::F4E2M1:
  case DType::I4:
  case DType::U4:
    return 4;
  case DType::I2:
  case DType::U2:
    return 2;
  default:
    return 8 * dtypeBytes(dtype);
  }
}

Type attn::onnx::elementType(MLIRContext *context, DType dtype) {
  switch (dtype) {
  case DType::F32:
    return Float32Type::get(context);
  case DType::F64:
    return Float64Type::get(context);
  case DType::F16:
    return Float16Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  default:
    return IntegerType::get(context, 8 * dtypeBytes(dtype));
  }
}

std::optional<DType> attn::onnx::dtypeFromProto(int64_t type) {
  switch (type) {
  case proto::TensorProto::FLOAT:
    return DType::F32;
  case proto::TensorProto::DOUBLE:
    return DType::F64;
  case proto::TensorProto::FLOAT16:
    return DType::F16;
  case proto::TensorProto::BFLOAT16:
    return DType::BF16;
  case proto::TensorProto::INT8:
    return DType::I8;
  case proto::TensorProto::INT16:
    return DType::I16;
  case proto::TensorProto::INT32:
    return DType::I32;
  case proto::TensorProto::INT64:
    return DType::I64;
  case proto::TensorProto::UINT8:
    return DType::U8;
  case proto::TensorProto::UINT16:
    return DType::U16;
  case proto::TensorProto::UINT32:
    return DType::U32;
  case proto::TensorProto::UINT64:
    return DType::U64;
  case proto::TensorProto::BOOL:
    return DType::Bool;
  case proto::TensorProto::FLOAT8E4M3FN:
    return DType::F8E4M3FN;
  case proto::TensorProto::FLOAT8E4M3FNUZ:
    return DType::F8E4M3FNUZ;
  case proto::TensorProto::FLOAT8E5M2:
    return DType::F8E5M2;
  case proto::TensorProto::FLOAT8E5M2FNUZ:
    return DType::F8E5M2FNUZ;
  case proto::TensorProto::INT4:
    return DType::I4;
  case proto::TensorProto::UINT4:
    return DType::U4;
  case proto::TensorProto::INT2:
    return DType::I2;
  case proto::TensorProto::UINT2:
    return DType::U2;
  case proto::TensorProto::FLOAT4E2M1:
    return DType::F4E2M1;
  case proto::TensorProto::FLOAT8E8M0:
    return DType::F8E8M0;
  default:
    return std::nullopt;
  }
}

std::optional<Scalar> Tensor::scalar() const {
  if (!elements || elements->size() != 1)
    return std::nullopt;
  return elements->front();
}

//===----------------------------------------------------------------------===//
// Node
//===----------------------------------------------------------------------===//

StringRef Node::opType() const { return impl.node.op; }
int Node::version() const { return impl.node.version; }
Location Node::loc() const { return impl.loc; }
OpBuilder &Node::builder() { return impl.state.builder; }
Symbols &Node::symbols() { return impl.state.symbols; }
std::string Node::describe() const { return nodeName(impl.loc).str(); }

// One error a node: what follows from the first says nothing new. A diagnostic
// that is not in flight swallows its text.
InFlightDiagnostic Node::error() {
  if (std::exchange(impl.failed, true))
    return {};
  return impl.state.reporter.invalid(impl.loc);
}

InFlightDiagnostic Node::unsupported() {
  if (std::exchange(impl.failed, true))
    return {};
  return impl.state.reporter.unsupported(impl.loc);
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

size_t Node::numInputs() const { return impl.node.inputs.size(); }
size_t Node::numOutputs() const { return impl.node.outputs.size(); }

bool Node::hasInput(size_t i) const { return i < impl.node.inputs.size() && impl.state.isGiven(impl.node.inputs[i]); }

bool Node::hasOutput(size_t i) const {
  return i < impl.node.outputs.size() && impl.node.outputs[i] != GraphNode::kNone;
}

std::optional<int64_t> Node::declaredRank(size_t i) const {
  if (!hasOutput(i))
    return std::nullopt;
  auto it = impl.state.ranks.find(impl.node.outputs[i]);
  return it == impl.state.ranks.end() ? std::nullopt : std::optional(it->second);
}

const Tensor &Node::input(size_t i) const {
  static const Tensor missing = [] {
    // What an importer sees that reads beyond the inputs: something harmless.
    // The error is reported, and the node fails whatever the importer returns.
    Tensor t;
    t.elements.emplace(1, Scalar(0.0));
    return t;
  }();
  if (!hasInput(i)) {
    const_cast<Node *>(this)->error() << "has no input " << i;
    return missing;
  }
  const Tensor &t = *impl.state.values[impl.node.inputs[i]];
  if (!t.sequence)
    return t;
  const_cast<Node *>(this)->error() << "input " << i << " is a sequence, expected a tensor";
  return missing;
}

const Sequence *Node::sequence(size_t i) const {
  if (isSequence(i))
    return impl.state.values[impl.node.inputs[i]]->sequence.get();
  const_cast<Node *>(this)->error() << "input " << i << " is no sequence";
  return nullptr;
}

bool Node::isSequence(size_t i) const { return hasInput(i) && impl.state.values[impl.node.inputs[i]]->sequence; }

Value Node::value(const Tensor &t) { return t.value ? t.value : impl.state.materialize(t, impl.loc); }

std::optional<SmallVector<int64_t>> Node::constantInts(size_t i) const {
  const Tensor &t = input(i);
  if (!t.elements || isFloat(t.dtype))
    return std::nullopt;
  SmallVector<int64_t> result;
  for (const Scalar &element : *t.elements) {
    std::optional<int64_t> constant = std::get<Expr>(element).constant();
    if (!constant)
      return std::nullopt;
    result.push_back(*constant);
  }
  return result;
}

std::optional<SmallVector<double>> Node::constantFloats(size_t i) const {
  const Tensor &t = input(i);
  if (!t.elements || !isFloat(t.dtype))
    return std::nullopt;
  SmallVector<double> result;
  for (const Scalar &element : *t.elements)
    result.push_back(std::get<double>(element));
  return result;
}

std::optional<std::vector<char>> Node::constantBytes(const Tensor &t) const {
  int64_t width = dtypeBytes(t.dtype);
  if (t.elements) {
    std::vector<char> bytes(t.elements->size() * width);
    for (auto [i, element] : llvm::enumerate(*t.elements))
      if (!writeScalar(element, t.dtype, bytes.data() + i * width))
        return std::nullopt;
    return bytes;
  }
  if (!t.weight.empty()) {
    auto global = impl.state.module.lookupSymbol<GlobalOp>(t.weight);
    auto initializer = global ? dyn_cast<InitializerAttr>(global.getExpression()) : InitializerAttr();
    if (!initializer)
      return std::nullopt;
    ArrayRef<char> bytes = impl.state.weights.lookup(initializer.getName());
    return std::vector<char>(bytes.begin(), bytes.end());
  }
  DenseElementsAttr dense;
  if (!t.value || !matchPattern(t.value, m_Constant(&dense)))
    return std::nullopt;
  ArrayRef<char> raw = dense.getRawData();
  std::vector<char> bytes;
  for (int64_t n = 0; n < (dense.isSplat() ? dense.getNumElements() : 1); ++n)
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  return bytes;
}

std::optional<SmallVector<Expr>> Node::exprs(size_t i) {
  const Tensor &t = input(i);
  if (isFloat(t.dtype))
    return std::nullopt;
  SmallVector<Expr> result;
  if (t.elements) {
    for (const Scalar &element : *t.elements)
      result.push_back(std::get<Expr>(element));
    return result;
  }
  std::optional<int64_t> length = t.rank() == 0 ? std::optional<int64_t>(1) : t.shape[0].constant();
  if (t.rank() > 1 || !length || *length > int64_t(Tensor::kMaxElements))
    return std::nullopt;
  OpBuilder &b = builder();
  for (int64_t at = 0; at < *length; ++at) {
    auto [it, fresh] = impl.state.reads.try_emplace({t.value.getAsOpaquePointer(), at});
    if (fresh) {
      // Where the tensor is made, so that all may use it who may use the tensor.
      OpBuilder::InsertionGuard guard(b);
      Value tensor = t.value;
      Block *block = tensor.getParentBlock();
      if (llvm::is_contained(symbols().getHomes(), block))
        b.setInsertionPointToEnd(block);
      if (symbols().getHomes().front() != block)
        impl.state.innerReads.push_back({tensor.getAsOpaquePointer(), at});
      SmallVector<Value> index;
      if (t.rank() == 1)
        index.push_back(arith::ConstantIndexOp::create(b, impl.loc, at));
      Value element = tensor::ExtractOp::create(b, impl.loc, t.value, index);
      if (isSigned(t.dtype))
        element = arith::IndexCastOp::create(b, impl.loc, b.getIndexType(), element);
      else
        element = arith::IndexCastUIOp::create(b, impl.loc, b.getIndexType(), element);
      std::optional<int64_t> lower, upper;
      if (t.dtype == DType::Bool)
        lower = 0, upper = 1;
      else if (!isSigned(t.dtype) && t.dtype != DType::U64)
        lower = 0;
      it->second =
          t.dtype == DType::Bool ? symbols().opaque(element, lower, upper) : symbols().read(element, lower, upper);
    }
    result.push_back(it->second);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

using AttributeType = proto::AttributeProto::AttributeType;

/// The attribute `name` of type `type`, or null; one of another type is an error.
static const proto::AttributeProto *findAttribute(Node &node, const Node::Impl &impl, StringRef name,
                                                  AttributeType type) {
  for (auto [key, attribute] : impl.node.attributes) {
    if (key != name)
      continue;
    if (attribute->type() == type)
      return attribute;
    node.error() << "attribute '" << name << "' is " << proto::AttributeProto::AttributeType_Name(attribute->type())
                 << ", expected " << proto::AttributeProto::AttributeType_Name(type);
    return nullptr;
  }
  return nullptr;
}

bool Node::hasAttr(StringRef name) const {
  return llvm::any_of(impl.node.attributes, [&](const auto &attribute) { return attribute.first == name; });
}

int64_t Node::intAttr(StringRef name, int64_t fallback) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::INT);
  return found ? found->i() : fallback;
}

double Node::floatAttr(StringRef name, double fallback) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::FLOAT);
  return found ? found->f() : fallback;
}

std::string Node::stringAttr(StringRef name, StringRef fallback) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::STRING);
  return found ? found->s() : fallback.str();
}

std::optional<SmallVector<int64_t>> Node::intsAttr(StringRef name) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::INTS);
  if (!found)
    return std::nullopt;
  return SmallVector<int64_t>(found->ints().begin(), found->ints().end());
}

std::optional<SmallVector<double>> Node::floatsAttr(StringRef name) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::FLOATS);
  if (!found)
    return std::nullopt;
  return SmallVector<double>(found->floats().begin(), found->floats().end());
}

std::optional<SmallVector<std::string>> Node::stringsAttr(StringRef name) const {
  auto *found = findAttribute(const_cast<Node &>(*this), impl, name, proto::AttributeProto::STRINGS);
  if (!found)
    return std::nullopt;
  return SmallVector<std::string>(found->strings().begin(), found->strings().end());
}

std::optional<Tensor> Node::tensorAttr(StringRef name) {
  auto *found = findAttribute(*this, impl, name, proto::AttributeProto::TENSOR);
  if (!found)
    return std::nullopt;
  PayloadError problem;
  // Not taken: a function's body may be imported again.
  auto &tensor = const_cast<proto::TensorProto &>(found->t());
  std::optional<Payload> payload = readPayload(tensor, /*take=*/false, impl.state.files, problem);
  if (!payload) {
    (problem.unsupported ? unsupported() : error()) << "tensor in attribute '" << name << "' " << problem.message;
    return std::nullopt;
  }
  if (payload->data.bytes.size() >= kMinUniformBytes) {
    SmallVector<Expr> shape(payload->shape.begin(), payload->shape.end());
    if (std::optional<Tensor> uniform = uniformTensor(payload->dtype, shape, payload->data.bytes))
      return uniform;
  }
  return impl.state.constant(impl.node.name, *payload, impl.loc);
}

Tensor Node::constantTensor(DType dtype, ArrayRef<int64_t> shape, ArrayRef<char> bytes) {
  Payload payload;
  payload.dtype = dtype;
  payload.shape.assign(shape.begin(), shape.end());
  payload.data.bytes = bytes;
  return impl.state.constant(impl.node.name, payload, impl.loc);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void Node::setOutput(size_t i, Tensor t) {
  if (!hasOutput(i))
    return;
  if (t.sequence) {
    impl.outputs[i] = std::move(t);
    return;
  }
  if (t.shape.size() > kMaxRank) {
    error() << "output " << i << " has " << t.shape.size() << " dimensions, the limit is " << kMaxRank;
    return;
  }
  SmallVector<int64_t> known;
  for (const Expr &size : t.shape) {
    std::optional<int64_t> constant = size.constant();
    if (size.overflowed() || (constant && *constant < 0)) {
      error() << "output " << i << " has a dimension of size " << symbols().print(size);
      return;
    }
    if (constant)
      known.push_back(*constant);
  }
  if (!checkedBytes(known, dtypeBytes(t.dtype))) {
    std::string shape;
    for (const Expr &size : t.shape)
      shape += (shape.empty() ? "" : "x") + symbols().print(size);
    error() << "output " << i << " of shape " << shape << " is larger than the limit of " << kMaxTensorBytes
            << " bytes";
    return;
  }
  if (failed(requireShape(t.dtype, t.shape)))
    return;
  if (t.elements) {
    if (t.elements->size() > Tensor::kMaxElements ||
        int64_t(t.elements->size()) != checkedElements(known).value_or(-1)) {
      error() << "output " << i << " has " << t.elements->size() << " elements for its shape";
      return;
    }
    for (const Scalar &element : *t.elements)
      if (const Expr *value = std::get_if<Expr>(&element); value && value->overflowed()) {
        error() << "output " << i << " is an integer beyond 64 bits, or too long an expression";
        return;
      }
    uint64_t bytes = 8 * t.elements->size();
    if (bytes > kMaxFoldedBytes - impl.state.foldedBytes) {
      error() << "computing on constants takes more than the limit of " << kMaxFoldedBytes << " bytes";
      return;
    }
    impl.state.foldedBytes += bytes;
  }
  if (t.value) {
    RankedTensorType expected = type(t.dtype, t.shape);
    if (t.value.getType() != expected && !tensor::CastOp::areCastCompatible(t.value.getType(), expected)) {
      error() << "output " << i << " was built as " << t.value.getType() << ", its shape says " << expected
              << " (this is an error of the importer)";
      return;
    }
    if (t.value.getType() != expected)
      t.value = tensor::CastOp::create(builder(), impl.loc, expected, t.value);
    // Without elements there is nothing to compute, and slices at 0 are refused.
    if (llvm::is_contained(t.shape, Expr(0)) && !isa<BlockArgument>(t.value)) {
      t.value = empty(t.dtype, t.shape);
      t.weight.clear();
    }
  }
  impl.outputs[i] = std::move(t);
}

void Node::setOutput(size_t i, Value value, DType dtype, ArrayRef<Expr> shape) {
  Tensor t;
  t.dtype = dtype;
  t.shape.assign(shape.begin(), shape.end());
  t.value = value;
  setOutput(i, std::move(t));
}

void Node::setElements(size_t i, DType dtype, ArrayRef<Expr> shape, ArrayRef<Scalar> elements) {
  Tensor t;
  t.dtype = dtype;
  t.shape.assign(shape.begin(), shape.end());
  t.elements.emplace(elements.begin(), elements.end());
  setOutput(i, std::move(t));
}
