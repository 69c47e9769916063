#include "passes/graph/masks/EdgeLists.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {
namespace {

using Each = llvm::function_ref<Values(ValueRange init, llvm::function_ref<Values(Value, Value, ValueRange)> body)>;

/// Writes loops over integers in tensors.
class ListLoops {
public:
  ListLoops(OpBuilder &b, Location loc) : b(b), loc(loc) {}
  /// A counting sort of `count` numbers by their keys, which are below `keys`; `each` calls its body with each number
  /// and key. Of one key they keep their order.
  SortedEdges sort(Value count, Value keys, Each each);
  Values loop(Value from, Value to, ValueRange init, llvm::function_ref<Values(Value, ValueRange)> body);
  Value index(int64_t number) { return arith::ConstantIndexOp::create(b, loc, number); }

protected:
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value filled(ArrayRef<OpFoldResult> sizes, int64_t number, Type type);
  Value load(Value tensor, ValueRange at) {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), tensor::ExtractOp::create(b, loc, tensor, at));
  }
  Value store(Value number, Value tensor, ValueRange at) {
    Type element = cast<RankedTensorType>(tensor.getType()).getElementType();
    return tensor::InsertOp::create(b, loc, arith::IndexCastOp::create(b, loc, element, number), tensor, at);
  }

  OpBuilder &b;
  const Location loc;
};

/// Writes lists of one length.
class ListWriter : ListLoops {
public:
  ListWriter(const EdgeTable &table, unsigned queries, OpBuilder &b)
      : ListLoops(b, table.getValue().getLoc()), table(table), queryDim(queries) {}

  Value write();

private:
  Values forEachEdge(ValueRange init, llvm::function_ref<Values(Value query, Value key, ValueRange)> body);
  Values forEachPair(ValueRange init, llvm::function_ref<Values(Value query, Value key, Value isNew, ValueRange)> body);

  const EdgeTable &table;
  const unsigned queryDim;
  Value queries, keys;
  SortedEdges edges; ///< the query of each edge, by key
};

Value ListLoops::filled(ArrayRef<OpFoldResult> sizes, int64_t number, Type type) {
  Value empty = tensor::EmptyOp::create(b, loc, sizes, type);
  Value scalar = arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, number));
  return linalg::FillOp::create(b, loc, scalar, empty).getResult(0);
}

Values ListLoops::loop(Value from, Value to, ValueRange init, llvm::function_ref<Values(Value, ValueRange)> body) {
  OpBuilder::InsertionGuard guard(b);
  auto loop = scf::ForOp::create(b, loc, from, to, index(1), init);
  b.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(b, loc, body(loop.getInductionVar(), loop.getRegionIterArgs()));
  return Values(loop.getResults());
}

Values ListWriter::forEachEdge(ValueRange init, llvm::function_ref<Values(Value, Value, ValueRange)> body) {
  return table.forEachEdge(b, init, [&](OpBuilder &inner, Location, ValueRange place, ValueRange carried) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(inner.getInsertionBlock(), inner.getInsertionPoint());
    return body(place[queryDim], place[1 - queryDim], carried);
  });
}

SortedEdges ListLoops::sort(Value count, Value keys, Each each) {
  Value counts = filled(getAsOpFoldResult(keys), 0, b.getI64Type());
  counts = each(counts, [&](Value, Value key, ValueRange carried) -> Values {
             return {store(add(load(carried[0], key), index(1)), carried[0], key)};
           }).front();
  Value starts = loop(index(0), keys, {counts, index(0)}, [&](Value key, ValueRange carried) -> Values {
                   Value next = add(carried[1], load(carried[0], key));
                   return {store(carried[1], carried[0], key), next};
                 }).front();
  Value unsorted = tensor::EmptyOp::create(b, loc, getAsOpFoldResult(count), b.getI64Type());
  Values both = each({starts, unsorted}, [&](Value number, Value key, ValueRange carried) -> Values {
    Value at = load(carried[0], key);
    return {store(add(at, index(1)), carried[0], key), store(number, carried[1], at)};
  });
  return {both[1], both[0]};
}

/// `body` for each edge by ascending key, with 0 where the query had that key before and otherwise 1.
Values ListWriter::forEachPair(ValueRange init, llvm::function_ref<Values(Value, Value, Value, ValueRange)> body) {
  Values carried{index(0), filled(getAsOpFoldResult(queries), -1, b.getI64Type())};
  llvm::append_range(carried, init);
  Values end = loop(index(0), keys, carried, [&](Value key, ValueRange outer) -> Values {
    Value stop = load(edges.ends, key);
    Values next = loop(outer[0], stop, outer.drop_front(), [&](Value at, ValueRange inner) -> Values {
      Value query = load(edges.order, at);
      Value differs = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, load(inner[0], query), key);
      Value isNew = arith::SelectOp::create(b, loc, differs, index(1), index(0));
      Values after{store(key, inner[0], query)};
      llvm::append_range(after, body(query, key, isNew, inner.drop_front()));
      return after;
    });
    next.insert(next.begin(), stop);
    return next;
  });
  return Values(llvm::drop_begin(end, 2));
}

Value ListWriter::write() {
  SmallVector<OpFoldResult> sizes = table.getSizes(b);
  queries = getValueOrCreateConstantIndexOp(b, loc, sizes[queryDim]);
  keys = getValueOrCreateConstantIndexOp(b, loc, sizes[1 - queryDim]);
  // What goes over the edges by ascending key fills ascending lists.
  edges = sort(table.countEdges(b), keys, [&](ValueRange init, auto body) { return forEachEdge(init, body); });
  Value none = filled(getAsOpFoldResult(queries), 0, b.getI64Type());
  Value counts = forEachPair(none, [&](Value query, Value, Value isNew, ValueRange carried) -> Values {
                   return {store(add(load(carried[0], query), isNew), carried[0], query)};
                 }).front();
  Value width = loop(index(0), queries, index(1), [&](Value query, ValueRange carried) -> Values {
                  return {arith::MaxUIOp::create(b, loc, carried[0], load(counts, query))};
                }).front();
  Value lists = filled({getAsOpFoldResult(queries), getAsOpFoldResult(width)}, -1, b.getI32Type());
  return forEachPair({none, lists},
                     [&](Value query, Value key, Value isNew, ValueRange carried) -> Values {
                       Value filled = add(load(carried[0], query), isNew);
                       Value at = arith::SubIOp::create(b, loc, filled, index(1));
                       return {store(filled, carried[0], query), store(key, carried[1], {query, at})};
                     })
      .back();
}

} // namespace

SortedEdges sortEdges(OpBuilder &b, Location loc, Value edges, Value nodes, llvm::function_ref<Value(Value)> nodeOf) {
  ListLoops loops(b, loc);
  return loops.sort(edges, nodes, [&](ValueRange init, auto body) {
    return loops.loop(loops.index(0), edges, init,
                      [&](Value edge, ValueRange carried) { return body(edge, nodeOf(edge), carried); });
  });
}

Value listEdges(const EdgeTable &table, unsigned queries, OpBuilder &b) {
  return ListWriter(table, queries, b).write();
}

} // namespace attn
