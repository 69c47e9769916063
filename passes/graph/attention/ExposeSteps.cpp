#include "passes/graph/attention/ExposeSteps.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/LoopOps.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {
namespace {

/// Elements that the first buffer has room for.
constexpr int64_t kFirstRoom = 1024;

/// Steps differ in how many keys they have, therefore their slabs [rows, heads, keys] follow each other in one buffer.
class Steps {
public:
  Steps(TraceOp trace, Value shown, unsigned queryAxis, StringRef output)
      : trace(trace), loop(trace.getSteps().getDefiningOp<scf::WhileOp>()), shown(shown), queryAxis(queryAxis),
        output(output), b(trace), loc(trace.getLoc()), type(cast<RankedTensorType>(shown.getType())) {}

  Value expose() {
    unsigned first = carry();
    b.setInsertionPointAfterValue(shown);
    ValueRange before = loop.getAfterArguments().drop_front(first);
    Value row = lastQuery();
    Value start = tensor::ExtractOp::create(b, loc, before[kEnds], before[kNumber]);
    start = arith::IndexCastOp::create(b, loc, b.getIndexType(), start);
    Value end = arith::AddIOp::create(b, loc, start, sizeOf(row, 0));
    Value slabs = GrowOp::create(b, loc, before[kSlabs].getType(), before[kSlabs], end, 0);
    slabs = insertAlong(b, loc, row, slabs, 0, start);
    Value number = arith::AddIOp::create(b, loc, before[kNumber], index(1));
    Value room = arith::AddIOp::create(b, loc, number, index(1));
    Value ends = GrowOp::create(b, loc, before[kEnds].getType(), before[kEnds], room, 0);
    ends = tensor::InsertOp::create(b, loc, arith::IndexCastOp::create(b, loc, b.getI64Type(), end), ends, number);
    Value heads = hasHeads() ? sizeOf(shown, 1) : index(1);
    loop.getYieldOp().getResultsMutable().append({slabs, ends, number, heads});
    b.setInsertionPoint(trace);
    return gather(loop.getResults().drop_front(first));
  }

private:
  /// What the loop carries more: the slabs and their ends (of the first n steps at n), the number of steps, and how
  /// many heads they have.
  enum Carried { kSlabs, kEnds, kNumber, kHeads };

  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value sizeOf(Value tensor, unsigned dim) {
    return getValueOrCreateConstantIndexOp(b, loc, tensor::getMixedSize(b, loc, tensor, dim));
  }
  bool hasHeads() const { return queryAxis == 2; }
  bool hasKeys() const { return type.getRank() > queryAxis + 1; }
  /// Rows may share what is computed without them.
  bool isShared() const { return type.getDimSize(0) == 1; }

  /// The place of the first value that is new.
  unsigned carry() {
    b.setInsertionPoint(loop);
    Value none = index(0), ends = makeRoom(b.getI64Type());
    ends = tensor::InsertOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 0, 64), ends, none);
    SmallVector<Value> added{makeRoom(type.getElementType()), ends, none, none}, inits(loop.getInits());
    llvm::append_range(inits, added);
    SmallVector<Type> types(loop.getResultTypes());
    unsigned first = types.size();
    llvm::append_range(types, ValueRange(added).getTypes());
    auto wider = scf::WhileOp::create(b, loop.getLoc(), types, inits);
    wider->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
    wider.getBefore().takeBody(loop.getBefore());
    wider.getAfter().takeBody(loop.getAfter());
    for (Value value : added) {
      Value handed = wider.getBefore().addArgument(value.getType(), loc);
      wider.getConditionOp().getArgsMutable().append(handed);
      wider.getAfter().addArgument(value.getType(), loc);
    }
    loop.replaceAllUsesWith(wider.getResults().take_front(first));
    loop.erase();
    loop = wider;
    return first;
  }

  Value makeRoom(Type element) {
    auto list = RankedTensorType::get({ShapedType::kDynamic}, element);
    Value count = index(kFirstRoom);
    return GrowOp::create(b, loc, list, tensor::EmptyOp::create(b, loc, list, count), count, 0);
  }

  /// The last query of all rows and heads, as a list.
  Value lastQuery() {
    if (!isShared()) {
      Value rows = sizeOf(shown, 0), wanted = trace.getCount();
      Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rows, wanted);
      RequireOp::create(b, loc, fits, "search: '" + printableName(output.str()) + "' has {0} rows, the tokens have {1}",
                        ValueRange{rows, wanted});
    }
    Value number = arith::SubIOp::create(b, loc, sizeOf(shown, queryAxis), index(1));
    Value last = sliceAlong(b, loc, shown, queryAxis, number, b.getIndexAttr(1));
    SmallVector<ReassociationIndices> all{llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()))};
    Value list = tensor::CollapseShapeOp::create(b, loc, last, all);
    auto open = RankedTensorType::get({ShapedType::kDynamic}, type.getElementType());
    return castTo(b, loc, list, open);
  }

  /// [items.., heads, tokens, keys]
  Value gather(ValueRange carried) {
    Value rows = trace.getRows();
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, rows);
    OpFoldResult tokens = sizes.pop_back_val();
    int64_t items = sizes.size();
    SmallVector<AffineExpr> token;
    for (int64_t n = 0; n != items; ++n)
      token.push_back(b.getAffineDimExpr(n));
    auto known = [&](unsigned dim, llvm::function_ref<Value()> open) {
      return type.isDynamicDim(dim) ? OpFoldResult(open()) : b.getIndexAttr(type.getDimSize(dim));
    };
    if (hasHeads())
      sizes.push_back(known(1, [&]() -> Value { return carried[kHeads]; }));
    token.push_back(b.getAffineDimExpr(sizes.size()));
    sizes.push_back(tokens);
    if (hasKeys())
      sizes.push_back(known(queryAxis + 1, [&] { return mostKeys(carried, tokens); }));
    int64_t rank = sizes.size();
    return elementwise(b, loc, sizes, type.getElementType(), rows, AffineMap::get(rank, 0, token, b.getContext()),
                       [&](OpBuilder &at, Location where, ValueRange args) {
                         auto place = [&](int64_t dim) { return linalg::IndexOp::create(at, where, dim).getResult(); };
                         Value zero = arith::ConstantIndexOp::create(at, where, 0);
                         Value time = place(items + hasHeads()), key = hasKeys() ? place(rank - 1) : zero;
                         return elementOf(at, where, carried, args[0], time, hasHeads() ? place(items) : zero, key);
                       });
  }

  /// The slab of the step in which token `time` was chosen, and how many keys it has: 0 where there is none.
  struct Slab {
    Value start, keys;
  };
  Slab slabOf(OpBuilder &at, Location where, ValueRange carried, Value time) {
    auto number = [&](int64_t value) { return arith::ConstantIndexOp::create(at, where, value).getResult(); };
    auto endOf = [&](Value step) {
      Value end = tensor::ExtractOp::create(at, where, carried[kEnds], step);
      return arith::IndexCastOp::create(at, where, at.getIndexType(), end).getResult();
    };
    Value zero = number(0), one = number(1);
    // Of a step before the first one, or that never came, the two ends are one.
    Value first = trace.getBegun() ? arith::SubIOp::create(at, where, time, one).getResult() : time;
    Value there = arith::CmpIOp::create(at, where, arith::CmpIPredicate::ult, first, carried[kNumber]);
    first = arith::SelectOp::create(at, where, there, first, zero);
    Value next = arith::AddIOp::create(at, where, first, one);
    next = arith::SelectOp::create(at, where, there, next, zero);
    Value start = endOf(first), size = arith::SubIOp::create(at, where, endOf(next), start);
    Value slices = slicesOf(at, where, carried);
    return {start, arith::DivUIOp::create(at, where, size, arith::MaxUIOp::create(at, where, slices, one))};
  }

  /// Rows and heads of a slab.
  Value slicesOf(OpBuilder &at, Location where, ValueRange carried) {
    Value heads = carried[kHeads];
    return isShared() ? heads : arith::MulIOp::create(at, where, trace.getCount(), heads).getResult();
  }

  /// Of the steps in which tokens were chosen.
  Value mostKeys(ValueRange carried, OpFoldResult tokens) {
    Type i64 = b.getI64Type();
    AffineMap each = b.getMultiDimIdentityMap(1);
    Value keys = elementwise(b, loc, {tokens}, i64, {}, {}, [&](OpBuilder &at, Location where, ValueRange) -> Value {
      Value time = linalg::IndexOp::create(at, where, 0);
      return arith::IndexCastOp::create(at, where, i64, slabOf(at, where, carried, time).keys);
    });
    Value none = tensor::FromElementsOp::create(b, loc, RankedTensorType::get({}, i64),
                                                ValueRange(arith::ConstantIntOp::create(b, loc, 0, 64)));
    Value most = reduction(b, loc, keys, each, none, AffineMap::get(1, 0, b.getContext()),
                           [](OpBuilder &at, Location where, ValueRange args) -> Value {
                             return arith::MaxUIOp::create(at, where, args[0], args[1]);
                           });
    most = tensor::ExtractOp::create(b, loc, most, ValueRange());
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), most);
  }

  /// 0 where there is none.
  Value elementOf(OpBuilder &at, Location where, ValueRange carried, Value row, Value time, Value head, Value key) {
    Value zero = arith::ConstantIndexOp::create(at, where, 0);
    Slab slab = slabOf(at, where, carried, time);
    row = arith::IndexCastOp::create(at, where, at.getIndexType(), row);
    Value there = arith::CmpIOp::create(at, where, arith::CmpIPredicate::sge, row, zero);
    Value isSeen = arith::CmpIOp::create(at, where, arith::CmpIPredicate::ult, key, slab.keys);
    there = arith::AndIOp::create(at, where, there, isSeen);
    if (isShared())
      row = zero;
    Value slice = arith::AddIOp::create(at, where, arith::MulIOp::create(at, where, row, carried[kHeads]), head);
    Value offset = arith::AddIOp::create(at, where, arith::MulIOp::create(at, where, slice, slab.keys), key);
    Value place = arith::AddIOp::create(at, where, slab.start, offset);
    place = arith::SelectOp::create(at, where, there, place, zero);
    Value element = tensor::ExtractOp::create(at, where, carried[kSlabs], place);
    Value none = arith::ConstantOp::create(at, where, at.getZeroAttr(type.getElementType()));
    return arith::SelectOp::create(at, where, there, element, none);
  }

  TraceOp trace;
  scf::WhileOp loop;
  Value shown;
  unsigned queryAxis;
  StringRef output;
  OpBuilder b;
  Location loc;
  RankedTensorType type;
};
} // namespace

TraceOp traceAround(Operation *op) {
  auto loop = dyn_cast<scf::WhileOp>(op->getParentOp());
  if (!loop || !isa<func::FuncOp>(loop->getParentOp()) || op->getParentRegion() != &loop.getAfter())
    return {};
  for (Operation *user : loop->getUsers())
    if (auto trace = dyn_cast<TraceOp>(user))
      return trace;
  return {};
}

Value exposeSteps(TraceOp trace, Value shown, unsigned queryAxis, StringRef output) {
  return Steps(trace, shown, queryAxis, output).expose();
}

} // namespace attn
