// What a run may set of a search, and what it does to scores before it chooses.
#include "dialects/attn/LoopOps.h"
#include "passes/lowering/search/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

/// An operand of the op, or null.
Value SearchLoop::given(StringRef name) {
  for (auto [number, setting] : llvm::enumerate(op.getGiven().getAsValueRange<StringAttr>()))
    if (setting == name)
      return op.getSettings()[number];
  return {};
}

Value SearchLoop::integerSetting(StringRef name, int64_t fallback) {
  Value value = given(name);
  return value ? value : integer(fallback);
}

Value SearchLoop::realSetting(StringRef name, double fallback, Type type) {
  Value value = given(name);
  if (!value)
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, fallback));
  return value.getType() == type ? value : arith::TruncFOp::create(b, loc, type, value).getResult();
}

/// The caller hears of the token of each row that had not ended before step `number`: then its length is that.
void SearchLoop::tell(Value tokens, Value info, Value number) {
  if (op.isBeam() || !target.showsTokens())
    return;
  Value step = arith::SubIOp::create(b, loc, number, index(1)), zero = index(0);
  Value count = arith::IndexCastOp::create(b, loc, b.getI64Type(), number);
  auto loop = scf::ForOp::create(b, loc, zero, rows, index(1));
  OpBuilder body = OpBuilder::atBlockTerminator(loop.getBody());
  Value row = loop.getInductionVar();
  Value length = tensor::ExtractOp::create(body, loc, info, ValueRange{row, zero, zero});
  Value isNew = arith::CmpIOp::create(body, loc, arith::CmpIPredicate::eq, length, count);
  auto branch = scf::IfOp::create(body, loc, isNew);
  OpBuilder then = branch.getThenBodyBuilder();
  Value token = tensor::ExtractOp::create(then, loc, tokens, ValueRange{row});
  TellOp::create(then, loc, token, row, step);
}

SearchLoop::StepTokens SearchLoop::chosenBefore(ValueRange carried) {
  return {carried[history], op.isBeam() ? carried[parents] : Value(), given("prompt") ? carried[sequence] : Value()};
}

/// Places in the loop for the tokens of each row behind those of its prompt, should scores depend on them.
void SearchLoop::carrySequence() {
  if (!given("prompt"))
    return;
  auto type = RankedTensorType::get({kDynamic, kDynamic}, b.getI64Type());
  Value length = sizeOf(given("prompt"), 1);
  Value buffer = tensor::EmptyOp::create(b, loc, type, ValueRange{length, rows});
  sequence = carry(GrowOp::create(b, loc, type, buffer, length, 0));
}

/// `scores` of step `number`, and the logarithms of the sums of their exponentials as they were. Without a prompt
/// nothing happens to scores. A token that is forced may end a hypothesis, whatever `mayNotEnd` said.
std::pair<Value, Value> SearchLoop::adjust(Value scores, Value number, const StepTokens &before, Value &mayNotEnd) {
  Value prompt = given("prompt");
  if (!prompt)
    return {scores, Value()};
  Type f32 = b.getF32Type(), i64 = b.getI64Type();
  auto matrix = RankedTensorType::get({kDynamic, kDynamic}, f32),
       ids = RankedTensorType::get({kDynamic, kDynamic}, i64);
  auto list = [&](StringRef name) -> Value {
    auto type = RankedTensorType::get({kDynamic}, i64);
    if (Value tokens = given(name))
      return castTo(tokens, type);
    return castTo(tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{0}, i64), type);
  };
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value c) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, a, c);
  };
  Value steps = arith::SubIOp::create(b, loc, number, index(1)), length = sizeOf(prompt, 1);
  // Only where the prompt is one token, the first of all, is there a second to force; other tokens then begin behind
  // it.
  Value bos = integerSetting("forced_bos", -1), eos = integerSetting("forced_eos", -1), none = integer(-1);
  Value forcesSecond = arith::AndIOp::create(b, loc, compare(arith::CmpIPredicate::sge, bos, integer(0)),
                                             compare(arith::CmpIPredicate::eq, length, index(1)));
  Value begin = arith::SelectOp::create(b, loc, forcesSecond, index(1), index(0));
  Value isFirst = compare(arith::CmpIPredicate::eq, steps, index(0)),
        isBegin = compare(arith::CmpIPredicate::eq, steps, begin),
        isLast = compare(arith::CmpIPredicate::sge, number, op.getMaxLength());
  // The end comes after the beginning, so that it overrides it.
  Value first = arith::SelectOp::create(b, loc, arith::AndIOp::create(b, loc, forcesSecond, isFirst), bos, none);
  Value ends = arith::AndIOp::create(b, loc, compare(arith::CmpIPredicate::sge, eos, integer(0)), isLast);
  Value forced = arith::SelectOp::create(b, loc, ends, eos, first);
  mayNotEnd = arith::AndIOp::create(b, loc, mayNotEnd, compare(arith::CmpIPredicate::slt, forced, integer(0)));
  Value all = arith::AddIOp::create(b, loc, length, number);
  Value buffer = GrowOp::create(b, loc, ids, before.sequence, all, 0);
  SmallVector<Value> made =
      call("search_adjust",
           {scores, castTo(prompt, ids), before.history, before.parents ? before.parents : before.history,
            list("hidden"), list("forbidden"), list("suppressed"), list("begin_suppressed"), steps, isBegin,
            realSetting("repetition_penalty", 1, f32), integerSetting("no_repeat_ngram", 0), forced, buffer},
           {{ids, {all, rows}}, {matrix, {rows, sizeOf(scores, 1)}}, {RankedTensorType::get({kDynamic}, f32), {rows}}},
           [&](OpBuilder &at, StringRef symbol) { return buildSearchAdjust(at, symbol, spec); }, {13});
  sequenceAfter = made[0];
  return {made[1], made[2]};
}
