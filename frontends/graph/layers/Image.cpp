#include "frontends/graph/Layer.h"
#include "llvm/ADT/StringSwitch.h"

// Pooling and sampling of images [batch, channels, height, width].

using namespace mlir;

namespace attn::graph {
namespace {

void buildPool(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 3, 4, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t spatial = x.rank() - 2;
  SmallVector<int64_t> size = l.integers("size", spatial, 1);
  for (StringRef key : {"size", "stride"})
    if (const Json *field = l.json.find(key);
        field && field->is(Json::Array) && int64_t(field->items.size()) != spatial) {
      l.error(field) << "gives " << field->items.size() << " numbers for " << spatial << " dimensions";
      return;
    }
  SmallVector<int64_t> stride = l.has("stride") ? l.integers("stride", spatial, 1) : size;
  l.set(l.op(l.text("operation", "max") == "max" ? "MaxPool" : "AveragePool", {x},
             {{"kernel_shape", size}, {"strides", stride}}));
}

void buildAffineGrid(Layer &l) {
  Tensor theta = l.value("input");
  if (!l.expectRank(theta, 3, "its input"))
    return;
  SmallVector<Expr> shape{Layer::dim(theta, 0), Expr(1)};
  for (const Json &item : l.json.find("size")->items)
    shape.push_back(l.size(item));
  l.set(l.op("AffineGrid", {theta, Layer::sizes(shape)}, {{"align_corners", int64_t(l.flag("align_corners", false))}}));
}

void buildSampleGrid(Layer &l) {
  Tensor x = l.value("input"), grid = l.value("grid");
  if (!l.expectRank(x, 4, "its input") || !l.expectRank(grid, 4, "its grid"))
    return;
  l.set(l.op("GridSample", {x, grid},
             {{"align_corners", int64_t(l.flag("align_corners", false))},
              {"mode", std::string("linear")},
              {"padding_mode", std::string("zeros")}}));
}

} // namespace

LayerFn findImageLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Case("pool", buildPool)
      .Case("affine_grid", buildAffineGrid)
      .Case("sample_grid", buildSampleGrid)
      .Default(nullptr);
}

} // namespace attn::graph
