#include "frontends/search/Beginning.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/OptionalInput.h"
#include "frontends/search/DecoderInputs.h"
#include "frontends/search/SearchTensors.h"
#include "frontends/search/StepRoles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

Beginning::Beginning(func::FuncOp step, StringRef scores, const SearchOptions &options, OpBuilder &b, AddInput addInput)
    : step(step), scores(scores), options(options), b(b), loc(step.getLoc()), addInput(std::move(addInput)) {}

InFlightDiagnostic Beginning::error() { return emitError(loc) << "the search around '" << options.step << "' "; }

/// The number of the output `name`; -1.
static int64_t findOutput(func::FuncOp entry, StringRef name) {
  for (unsigned n = 0; n < entry.getNumResults(); ++n)
    if (nameOfOutput(entry, n) == name)
      return n;
  return -1;
}

/// Scores of the next token in f32.
static int64_t findScores(func::FuncOp entry, StringRef name) {
  int64_t n = findOutput(entry, name);
  auto type = n < 0 ? RankedTensorType() : cast<RankedTensorType>(entry.getResultTypes()[n]);
  return type && type.getElementType().isF32() && (type.getRank() == 2 || type.getRank() == 3) ? n : -1;
}

//===----------------------------------------------------------------------===//
// What there is
//===----------------------------------------------------------------------===//

Value Beginning::output(func::FuncOp of, StringRef name, StringRef later) {
  for (const NameMap &map : options.maps) {
    if (map.input != name || (!map.step.empty() && map.step != nameOfEntry(of)))
      continue;
    for (Call &call : calls)
      if (int64_t n = findOutput(call.entry, map.output); n >= 0 && map.entry == nameOfEntry(call.entry))
        return call.op.getResult(n);
  }
  for (int pass = 0; pass < 3; ++pass)
    for (Call &call : llvm::reverse(calls))
      for (unsigned n = 0; n < call.entry.getNumResults(); ++n) {
        StringRef output = nameOfOutput(call.entry, n);
        if (pass == 0 ? output == name : pass == 1 ? !later.empty() && output == later : isStatePair(name, output))
          return call.op.getResult(n);
      }
  // As the encoders of transformers call what their decoders take.
  if (name == "encoder_hidden_states" || name == "encoder_outputs")
    for (Call &call : calls)
      if (int64_t n = findOutput(call.entry, "last_hidden_state"); n >= 0)
        return call.op.getResult(n);
  return {};
}

Value Beginning::input(StringRef name) {
  for (auto &[known, value] : inputs)
    if (known == name && !name.empty())
      return value;
  return {};
}

SmallVector<StringRef> Beginning::dimsOf(Value value) {
  for (Call &call : calls)
    if (value.getDefiningOp() == call.op)
      return dimsOfOutput(call.entry, cast<OpResult>(value).getResultNumber());
  return {};
}

FailureOr<Value> Beginning::fit(Value given, Type type, StringRef name) {
  auto have = cast<RankedTensorType>(given.getType()), want = cast<RankedTensorType>(type);
  bool fits = have.getRank() == want.getRank() && have.getElementType() == want.getElementType();
  for (int64_t dim = 0; fits && dim < have.getRank(); ++dim)
    fits = have.isDynamicDim(dim) || want.isDynamicDim(dim) || have.getDimSize(dim) == want.getDimSize(dim);
  if (!fits) {
    options.blameStep();
    return error() << "gets " << shapeAndType(have) << " for '" << printableName(name) << "', of which the step takes "
                   << shapeAndType(want);
  }
  for (int64_t dim = 0; dim < have.getRank(); ++dim)
    if (have.isDynamicDim(dim) && !want.isDynamicDim(dim))
      requireEqual(b, loc, sizeOf(b, loc, given, dim), arith::ConstantIndexOp::create(b, loc, want.getDimSize(dim)),
                   "search: '" + printableName(name) + "' has size {0} in a dimension, the step takes {1}");
  return castTensor(b, loc, given, want);
}

LogicalResult Beginning::checkUses() {
  for (Call &call : calls)
    if (call.op->use_empty())
      return error() << "takes nothing from '" << nameOfEntry(call.entry) << "', which --init= names: it returns "
                     << listNames(call.entry, /*ofInputs=*/false) << "; the step takes "
                     << listNames(step, /*ofInputs=*/true) << "; --map=" << nameOfEntry(call.entry)
                     << ".OUTPUT:" << options.step << ".INPUT pairs them";
  return success();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

LogicalResult Beginning::call(ArrayRef<func::FuncOp> entries, bool whole, SearchSeed &seed) {
  isWhole = whole;
  for (func::FuncOp entry : entries) {
    bool isDecoder = options.prompts && findScores(entry, scores) >= 0 && findTokens(entry) >= 0;
    if (isDecoder && failed(takePrompt(entry)))
      return failure();
    SmallVector<Value> operands;
    for (unsigned n = 0; n < entry.getNumArguments(); ++n) {
      FailureOr<Value> operand = isSeed(entry, n) ? seed.ofCall() : operandOf(entry, n, isDecoder);
      if (failed(operand))
        return failure();
      operands.push_back(*operand);
    }
    calls.push_back({entry, func::CallOp::create(b, loc, entry, operands)});
  }
  return !options.prompts || ids ? success() : takePrompt(step);
}

FailureOr<Value> Beginning::operandOf(func::FuncOp entry, unsigned number, bool takesPrompt) {
  StringRef name = nameOfInput(entry, number);
  Type type = entry.getArgumentTypes()[number];
  Value given = takesPrompt ? makeFor(entry, number, /*isNext=*/false) : Value();
  if (!given)
    given = output(entry, name);
  if (!given && options.init.size() > 1)
    given = input(name);
  if (given)
    return fit(given, type, name);
  given = addInput(type, entry.getArgAttrDict(number));
  inputs.push_back({name.str(), given});
  return given;
}

Value Beginning::first() {
  for (Call &call : llvm::reverse(calls))
    if (int64_t n = findScores(call.entry, scores); n >= 0) {
      Value result = call.op.getResult(n);
      bool isLast = cast<RankedTensorType>(result.getType()).getRank() == 2;
      return isLast ? result : lastPosition(b, loc, result, nameOfEntry(call.entry));
    }
  if (!ids)
    return {};
  Value last = arith::SubIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, 1));
  Value column = columns(b, loc, ids, OpFoldResult(last), b.getIndexAttr(1));
  SmallVector<ReassociationIndices> groups{{0, 1}};
  return tensor::CollapseShapeOp::create(b, loc, column, groups);
}

//===----------------------------------------------------------------------===//
// Prompts
//===----------------------------------------------------------------------===//

DictionaryAttr Beginning::describe(StringRef name, ArrayRef<StringRef> dims, bool isOptional) {
  NamedAttrList attrs;
  attrs.set(AttnDialect::kNameAttr, b.getStringAttr(name));
  attrs.set(AttnDialect::kDTypeAttr, b.getStringAttr("int64"));
  SmallVector<StringRef> compared(dims);
  if (isOptional) {
    compared.assign(dims.size(), "");
    attrs.set(kOptionalAttr, b.getUnitAttr());
    attrs.set(kGivenDimsAttr, b.getStrArrayAttr(dims));
  }
  attrs.set(AttnDialect::kDimsAttr, b.getStrArrayAttr(compared));
  return attrs.getDictionary(b.getContext());
}

/// Whether a caller left the matrix out.
static Value isAbsent(OpBuilder &b, Location loc, Value matrix) {
  Value elements = arith::MulIOp::create(b, loc, sizeOf(b, loc, matrix, 0), sizeOf(b, loc, matrix, 1));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, elements, arith::ConstantIndexOp::create(b, loc, 0));
}

/// `given`, or where it was left out a matrix of `number`.
static Value orFilled(OpBuilder &b, Location loc, Value given, ArrayRef<OpFoldResult> sizes, int64_t number) {
  auto choice = scf::IfOp::create(b, loc, TypeRange{given.getType()}, isAbsent(b, loc, given), /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  auto type = cast<RankedTensorType>(given.getType());
  OpBuilder absent = choice.getThenBodyBuilder(), there = choice.getElseBodyBuilder();
  Value all = filled(absent, loc, sizes, absent.getI64IntegerAttr(number));
  scf::YieldOp::create(absent, loc, castTensor(absent, loc, all, type));
  scf::YieldOp::create(there, loc, given);
  return choice.getResult(0);
}

/// What a decoder with an encoder reads: the first input of the encoder, or of a model that is both.
Value Beginning::takeSource(func::FuncOp decoder) {
  if (!inputs.empty())
    return inputs.front().second;
  for (unsigned n = 0; n < decoder.getNumArguments(); ++n) {
    Purpose purpose = purposeOf(decoder, n);
    StringRef name = nameOfInput(decoder, n);
    auto type = cast<RankedTensorType>(decoder.getArgumentTypes()[n]);
    if (purpose != Purpose::EncoderStates && (purpose != Purpose::Other || (isWhole && name == "ids")))
      continue;
    if (type.getRank() < 2)
      continue;
    Value given = addInput(type, decoder.getArgAttrDict(n));
    inputs.push_back({name.str(), given});
    return given;
  }
  return {};
}

LogicalResult Beginning::takePrompt(func::FuncOp decoder) {
  StringRef rowsName = dimsOfInput(decoder, findTokens(decoder))[0];
  Value source = takeSource(decoder), one = arith::ConstantIndexOp::create(b, loc, 1);
  rows = source ? sizeOf(b, loc, source, 0) : one;
  ids = takeTokens(source ? "decoder_input_ids" : "input_ids", rowsName, rows);
  length = sizeOf(b, loc, ids, 1);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, length, one);
  RequireOp::create(b, loc, some, "search: a prompt has {0} tokens, it needs at least 1", ValueRange{length});
  if (source)
    requireEqual(b, loc, sizeOf(b, loc, ids, 0), rows, "search: the prompt has {0} rows, the source has {1}");
  rows = sizeOf(b, loc, ids, 0);
  if (source)
    mask = filled(b, loc, {OpFoldResult(rows), OpFoldResult(length)}, b.getI64IntegerAttr(1));
  else
    takeMask(rowsName);
  return success();
}

/// The prompt, which where the first token is known may be left out.
Value Beginning::takeTokens(StringRef name, StringRef rowsName, Value count) {
  int64_t token = 0;
  auto type = RankedTensorType::get({kDynamic, kDynamic}, b.getI64Type());
  bool isKnown = !StringRef(options.bos).getAsInteger(10, token);
  Value given = addInput(type, describe(name, {rowsName, "prompt_length"}, /*isOptional=*/isKnown));
  inputs.push_back({name.str(), given});
  if (!isKnown)
    return given;
  return orFilled(b, loc, given, {OpFoldResult(count), b.getIndexAttr(1)}, token);
}

/// Which tokens of the prompt count: all, or those that the caller says, padded on the left.
void Beginning::takeMask(StringRef rowsName) {
  auto type = RankedTensorType::get({kDynamic, kDynamic}, b.getI64Type());
  Value given = addInput(type, describe("attention_mask", {rowsName, "prompt_length"}, /*isOptional=*/true));
  inputs.push_back({"attention_mask", given});
  mask = orFilled(b, loc, given, {OpFoldResult(rows), OpFoldResult(length)}, 1);
  requireEqual(b, loc, sizeOf(b, loc, mask, 0), rows, "search: the mask has {0} rows, the prompt has {1}");
  requireEqual(b, loc, sizeOf(b, loc, mask, 1), length, "search: the mask has {0} columns, the prompt has {1} tokens");
  Value last = arith::SubIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, 1));
  Value column = columns(b, loc, mask, OpFoldResult(last), b.getIndexAttr(1));
  SmallVector<ReassociationIndices> groups{{0, 1}};
  Value line = tensor::CollapseShapeOp::create(b, loc, column, groups);
  line = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get({1, kDynamic}, b.getI64Type()), line, groups,
                                       ArrayRef<OpFoldResult>{b.getIndexAttr(1), OpFoldResult(rows)});
  Value ends = countOnes(b, loc, line, b.getIndexAttr(1));
  Value number = tensor::ExtractOp::create(b, loc, ends, ValueRange{arith::ConstantIndexOp::create(b, loc, 0)});
  requireEqual(b, loc, arith::IndexCastOp::create(b, loc, b.getIndexType(), number), rows,
               "search: the mask hides the last token of a prompt: {0} of {1} prompts end in one that counts; pad them "
               "on the left");
}

Value Beginning::promptPadding() { return mask ? firstNonzeros(b, loc, mask) : Value(); }

/// Keys and values of no token.
Value Beginning::emptyCache(RankedTensorType type) {
  SmallVector<OpFoldResult> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    sizes.push_back(!type.isDynamicDim(dim) ? b.getIndexAttr(type.getDimSize(dim))
                    : dim == 0              ? OpFoldResult(rows)
                                            : b.getIndexAttr(0));
  Value empty = tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
  return castTensor(b, loc, empty, type);
}

/// The mask that the encoder was given, or ones over what it returned.
Value Beginning::encoderMask() {
  if (Value given = input("attention_mask"))
    return given;
  Value states = output(step, "encoder_hidden_states");
  if (!states)
    return {};
  return filled(b, loc, {tensor::getMixedSize(b, loc, states, 0), tensor::getMixedSize(b, loc, states, 1)},
                b.getI64IntegerAttr(1));
}

/// What the prompt makes of an input of `entry`, which is given the prompt, or `isNext` the token behind it.
Value Beginning::makeFor(func::FuncOp entry, unsigned number, bool isNext) {
  auto type = cast<RankedTensorType>(entry.getArgumentTypes()[number]);
  auto next = [&](Value value) { return castElements(b, loc, value, type.getElementType()); };
  OpFoldResult one = b.getIndexAttr(1), behind = length;
  switch (purposeOf(entry, number)) {
  case Purpose::Tokens:
    return isNext ? Value() : next(ids);
  case Purpose::EncoderMask: {
    Value given = encoderMask();
    return given ? next(given) : given;
  }
  case Purpose::Mask:
    return next(isNext && !isWhole ? extendMask(b, loc, mask) : mask);
  case Purpose::Positions:
    if (type.getRank() == 2 && isNext)
      return next(columns(b, loc, positionsOf(b, loc, extendMask(b, loc, mask)), behind, one));
    if (type.getRank() == 2)
      return next(positionsOf(b, loc, mask));
    [[fallthrough]];
  case Purpose::CachePositions: {
    if (!isNext)
      return next(countUp(b, loc, {behind}));
    Value last = arith::IndexCastOp::create(b, loc, b.getI64Type(), length);
    return next(tensor::FromElementsOp::create(b, loc, ValueRange{last}));
  }
  case Purpose::Past:
    // What an entry before has made goes on; the first one is given nothing.
    return isNext || output(entry, nameOfInput(entry, number)) ? Value() : emptyCache(type);
  default:
    return {};
  }
}

Value Beginning::made(unsigned number) {
  if (!ids)
    return {};
  if (isWhole && nameOfInput(step, number) == "ids") {
    Value before = arith::SubIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, 1));
    return columns(b, loc, ids, b.getIndexAttr(0), OpFoldResult(before));
  }
  return makeFor(step, number, /*isNext=*/true);
}
