#include "frontends/search/DecoderInputs.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/SearchTensors.h"
#include "frontends/search/StepRoles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

static int64_t findInput(func::FuncOp entry, StringRef name) {
  for (unsigned n = 0; n < entry.getNumArguments(); ++n)
    if (nameOfInput(entry, n) == name)
      return n;
  return -1;
}

int64_t attn::findTokens(func::FuncOp decoder) {
  // A model with encoder and decoder in one calls the source input_ids.
  for (StringRef name : {"decoder_input_ids", "token", "tokens", "input_ids"})
    if (int64_t n = findInput(decoder, name); n >= 0)
      return n;
  return -1;
}

bool attn::isCrossCache(StringRef name) { return name.starts_with("past") && name.contains(".encoder."); }

static bool isPast(func::FuncOp decoder, unsigned input) {
  StringRef name = nameOfInput(decoder, input);
  if (!name.starts_with("past"))
    return false;
  for (unsigned n = 0; n < decoder.getNumResults(); ++n)
    if (isStatePair(name, nameOfOutput(decoder, n)))
      return true;
  return isCrossCache(name);
}

bool attn::hasPast(func::FuncOp decoder) {
  return llvm::any_of(llvm::seq(decoder.getNumArguments()), [&](unsigned n) { return isPast(decoder, n); });
}

/// Whether the encoder is in there, too.
static bool takesSource(func::FuncOp decoder) {
  for (StringRef name : {"input_ids", "input_features", "input_values", "pixel_values"})
    if (int64_t n = findInput(decoder, name); n >= 0 && n != findTokens(decoder))
      return true;
  return false;
}

Purpose attn::purposeOf(func::FuncOp decoder, unsigned input) {
  StringRef name = nameOfInput(decoder, input);
  int64_t tokens = findTokens(decoder);
  if (tokens == input)
    return Purpose::Tokens;
  if (name == "encoder_hidden_states" || name == "encoder_outputs")
    return Purpose::EncoderStates;
  if (name == "encoder_attention_mask")
    return Purpose::EncoderMask;
  if (name == "decoder_attention_mask")
    return Purpose::Mask;
  if (name == "attention_mask") {
    bool isOfDecoder = tokens < 0 || nameOfInput(decoder, tokens) != "decoder_input_ids";
    if (isOfDecoder && !takesSource(decoder))
      return Purpose::Mask;
    return findInput(decoder, "encoder_hidden_states") >= 0 ? Purpose::EncoderMask : Purpose::Other;
  }
  if (llvm::is_contained({"position_ids", "decoder_position_ids", "positions"}, name))
    return Purpose::Positions;
  if (name == "cache_position" || name == "decoder_cache_position")
    return Purpose::CachePositions;
  return isPast(decoder, input) ? Purpose::Past : Purpose::Other;
}

//===----------------------------------------------------------------------===//
// A decoder without a cache
//===----------------------------------------------------------------------===//

namespace {
class StepOfWhole {
public:
  StepOfWhole(ModuleOp module, func::FuncOp whole, StringRef logits)
      : whole(whole), logits(logits), b(OpBuilder::atBlockEnd(module.getBody())), loc(whole.getLoc()) {}

  func::FuncOp run() {
    tokens = findTokens(whole);
    auto type = tokens < 0 ? RankedTensorType() : cast<RankedTensorType>(whole.getArgumentTypes()[tokens]);
    if (!type || type.getRank() != 2 || !type.isDynamicDim(1) || !type.getElementType().isInteger()) {
      whole.emitError() << "takes no cache, and has no input [rows, tokens] of any number of tokens either";
      return {};
    }
    SmallVector<StringRef> own = dimsOfInput(whole, tokens);
    rows = own[0].empty() ? "batch" : own[0];
    batch = type.getDimSize(0);
    step = func::FuncOp::create(b, loc, (whole.getSymName() + ".step").str(), b.getFunctionType({}, {}));
    step.setPrivate();
    b.setInsertionPointToStart(step.addEntryBlock());
    addArguments();
    fillBody();
    return step;
  }

private:
  Value addArgument(RankedTensorType type, StringRef name, StringRef dtype, ArrayRef<StringRef> dims) {
    attributes.push_back(b.getDictionaryAttr({b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
                                              b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtype)),
                                              b.getNamedAttr(AttnDialect::kDimsAttr, b.getStrArrayAttr(dims))}));
    return step.getBody().front().addArgument(type, loc);
  }

  void addArguments() {
    Type i64 = b.getI64Type();
    token = addArgument(RankedTensorType::get({batch}, i64), "token", "int64", {rows});
    ids = addArgument(RankedTensorType::get({batch, kDynamic}, i64), "ids", "int64", {rows, "ids before"});
    for (unsigned n = 0; n < whole.getNumArguments(); ++n) {
      Purpose purpose = purposeOf(whole, n);
      if (llvm::is_contained({Purpose::Tokens, Purpose::Positions, Purpose::CachePositions}, purpose))
        continue;
      DictionaryAttr attrs = whole.getArgAttrDict(n);
      Type type = whole.getArgumentTypes()[n];
      if (purpose == Purpose::Mask) {
        NamedAttrList changed(attrs);
        changed.set(AttnDialect::kDimsAttr, b.getStrArrayAttr({rows, "ids"}));
        attrs = changed.getDictionary(b.getContext());
      }
      attributes.push_back(attrs);
      Value argument = step.getBody().front().addArgument(type, loc);
      mapping.map(whole.getArgument(n), argument);
      if (purpose == Purpose::Mask)
        mask = argument;
    }
    step.setFunctionType(b.getFunctionType(step.getBody().front().getArgumentTypes(), {}));
    step.setArgAttrsAttr(b.getArrayAttr(attributes));
  }

  /// The ids with the token behind them.
  Value append() {
    OpFoldResult count = tensor::getMixedSize(b, loc, ids, 0), zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
    Value length = sizeOf(b, loc, ids, 1);
    Value next = arith::AddIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, 1));
    SmallVector<OpFoldResult> units{one, one};
    Value all = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{count, next}, b.getI64Type());
    all = tensor::InsertSliceOp::create(b, loc, ids, all, ArrayRef<OpFoldResult>{zero, zero},
                                        ArrayRef<OpFoldResult>{count, OpFoldResult(length)}, units);
    SmallVector<ReassociationIndices> groups{{0, 1}};
    Value column = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get({batch, 1}, b.getI64Type()), token,
                                                 groups, ArrayRef<OpFoldResult>{count, one});
    return tensor::InsertSliceOp::create(b, loc, column, all, ArrayRef<OpFoldResult>{zero, OpFoldResult(length)},
                                         ArrayRef<OpFoldResult>{count, one}, units);
  }

  void fillBody() {
    Value all = append();
    for (unsigned n = 0; n < whole.getNumArguments(); ++n) {
      auto type = cast<RankedTensorType>(whole.getArgumentTypes()[n]);
      Purpose purpose = purposeOf(whole, n);
      Value made;
      if (purpose == Purpose::Tokens)
        made = all;
      else if (purpose == Purpose::Positions && type.getRank() == 2)
        made = mask ? positionsOf(b, loc, mask) : countUp(b, loc, tensor::getMixedSizes(b, loc, all));
      else if (purpose == Purpose::Positions || purpose == Purpose::CachePositions)
        made = countUp(b, loc, {tensor::getMixedSize(b, loc, all, 1)});
      if (made)
        mapping.map(whole.getArgument(n), castTensor(b, loc, castElements(b, loc, made, type.getElementType()), type));
    }
    SmallVector<Value> results;
    for (Operation &each : whole.getBody().front().without_terminator())
      b.clone(each, mapping);
    SmallVector<Attribute> described;
    Operation *end = whole.getBody().front().getTerminator();
    for (unsigned n = 0; n < whole.getNumResults(); ++n)
      if (nameOfOutput(whole, n) == logits) {
        results.push_back(mapping.lookup(end->getOperand(n)));
        described.push_back(whole.getResultAttrDict(n));
      }
    results.push_back(all);
    described.push_back(
        b.getDictionaryAttr({b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr("next_ids")),
                             b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr("int64")),
                             b.getNamedAttr(AttnDialect::kDimsAttr, b.getStrArrayAttr({rows, "ids"}))}));
    func::ReturnOp::create(b, loc, results);
    step.setFunctionType(b.getFunctionType(step.getArgumentTypes(), ValueRange(results).getTypes()));
    step.setResAttrsAttr(b.getArrayAttr(described));
  }

  func::FuncOp whole, step;
  StringRef logits;
  OpBuilder b;
  Location loc;
  int64_t tokens = -1, batch = kDynamic;
  StringRef rows;
  Value token, ids, mask;
  SmallVector<Attribute> attributes;
  IRMapping mapping;
};
} // namespace

func::FuncOp attn::makeStepOfWhole(ModuleOp module, func::FuncOp whole, StringRef logits) {
  return StepOfWhole(module, whole, logits).run();
}
