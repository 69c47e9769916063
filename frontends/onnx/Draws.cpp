// The seed of a run, and what nodes that draw random numbers make of it.
#include "builders/Code.h"
#include "builders/Mix.h"
#include "dialects/attn/OptionalInput.h"
#include "frontends/onnx/State.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

void Node::enterIteration(const Expr &iteration) { impl.state.iterations.push_back(iteration); }
void Node::leaveIteration() { impl.state.iterations.pop_back(); }

Value Node::drawKey(std::optional<uint64_t> seed) {
  constexpr int64_t kOwnSeed = -1; // in place of a node's number, which its first output has
  OpBuilder &b = builder();
  ImportState &state = impl.state;
  if (!state.seed)
    state.seed = state.entry.getBody().front().addArgument(b.getI64Type(), state.entry.getLoc());
  Code k(b, impl.loc);
  int64_t number = *llvm::find_if(impl.node.outputs, [](int output) { return output != GraphNode::kNone; });
  attn::Num key = mix(k.asNum(state.seed) + (seed ? kOwnSeed : number));
  if (seed)
    key = mix(key + k.i64(static_cast<int64_t>(*seed)));
  for (const Expr &iteration : state.iterations)
    key = mix(key + toNum(k.asIndex(symbols().materialize(b, impl.loc, iteration)), b.getI64Type()));
  return key;
}

static bool takesSeed(func::FuncOp entry) {
  unsigned count = entry.getNumArguments();
  return count && entry.getArgAttr(count - 1, kSeedAttr);
}

/// `seed`, or where the model has such an input a name that it does not have.
static std::string freeInputName(func::FuncOp entry) {
  std::string name = "seed";
  auto isTaken = [&] {
    return llvm::any_of(llvm::seq(entry.getNumArguments()), [&](unsigned n) {
      auto taken = entry.getArgAttrOfType<StringAttr>(n, AttnDialect::kNameAttr);
      return taken && taken.getValue() == name;
    });
  };
  for (name = isTaken() ? "random_seed" : name; isTaken();)
    name += "'";
  return name;
}

static Value addSeedInput(func::FuncOp entry) {
  Builder b(entry.getContext());
  NamedAttrList attrs;
  attrs.set(AttnDialect::kNameAttr, b.getStringAttr(freeInputName(entry)));
  attrs.set(AttnDialect::kDTypeAttr, b.getStringAttr("int64"));
  attrs.set(AttnDialect::kDimsAttr, b.getStrArrayAttr({""}));
  attrs.set(kOptionalAttr, b.getUnitAttr());
  attrs.set(kGivenDimsAttr, b.getI64ArrayAttr({1}));
  attrs.set(kSeedAttr, b.getUnitAttr());
  unsigned last = entry.getNumArguments();
  (void)entry.insertArgument(last, RankedTensorType::get({ShapedType::kDynamic}, b.getI64Type()),
                             attrs.getDictionary(b.getContext()), entry.getLoc());
  return entry.getArgument(last);
}

/// mix(the one element of `list`, 0 where it has none), of code at the entry's beginning.
static Value readSeed(func::FuncOp entry, Value list) {
  OpBuilder b = OpBuilder::atBlockBegin(&entry.getBody().front());
  Code k(b, entry.getLoc());
  Index size = k.asIndex(tensor::DimOp::create(b, k.loc, list, 0));
  auto name = entry.getArgAttrOfType<StringAttr>(entry.getNumArguments() - 1, AttnDialect::kNameAttr);
  std::string message =
      "input '" + name.str() + "' has the shape [{0}], expected [1], or [0] to leave it out: the seed is 0 then";
  RequireOp::create(b, k.loc, size <= 1, message, ValueRange{size});
  return mix(k.choose(
      size == 1, [&] { return k.asNum(tensor::ExtractOp::create(b, k.loc, list, ValueRange{k.index(0)})); },
      [&] { return k.i64(0); }));
}

void ImportState::setSeed() {
  if (!seed)
    return;
  auto place = cast<BlockArgument>(seed); // the last argument, without attributes
  SmallVector<Attribute> attributes(entry.getArgAttrsAttr().getValue());
  attributes.push_back(builder.getDictionaryAttr({}));
  entry.setArgAttrsAttr(builder.getArrayAttr(attributes));
  if (!place.use_empty()) {
    Value list = addSeedInput(entry);
    place.replaceAllUsesWith(readSeed(entry, list));
  }
  (void)entry.eraseArgument(place.getArgNumber());
  seed = Value();
}

void attn::onnx::shareSeed(func::FuncOp entry, func::FuncOp form) {
  if (takesSeed(entry) != takesSeed(form))
    addSeedInput(takesSeed(entry) ? form : entry);
}
