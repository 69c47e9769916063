#ifndef PASSES_GRAPH_MASKS_WRITESLICES_H
#define PASSES_GRAPH_MASKS_WRITESLICES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {

class WeightStore;

/// Loops that write each element of a tensor to a place that, along each dimension, is a constant, an offset of a
/// slice, or one of these and a multiple of one loop, become the insertion of a slice with strides: as an assignment to
/// a slice is exported. That what only a run knows is in range is an attn.require in front. Of other places, with
/// `copiesRows`, the innermost loops that go along whole rows write these as slices.
void writeSlices(mlir::ModuleOp module, const mlir::SymbolTable &symbols, const WeightStore *weights, bool copiesRows);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_WRITESLICES_H
