#ifndef FRONTENDS_ONNX_OPS_RESIZING_H
#define FRONTENDS_ONNX_OPS_RESIZING_H

#include "frontends/onnx/ops/Num.h"

namespace attn::onnx {

/// How an output is mapped to a place in the input (coordinate_transformation_mode).
enum class Place {
  HalfPixel,
  HalfPixelSymmetric,
  PytorchHalfPixel,
  AlignCorners,
  Asymmetric,
  Crop,
  TfHalfPixelNearest
};
/// How a place is rounded to an element (nearest_mode; Simple is that of opsets before 11).
enum class Nearest { PreferFloor, PreferCeil, Floor, Ceil, Simple };

/// One dimension that changes.
struct Resized {
  int64_t dim;
  Num scale; // f64, output / input
  Expr size; // of the output
};

/// What Resize and Upsample ask for.
struct Resizing {
  std::string mode; // nearest, linear, cubic
  Place place = Place::HalfPixel;
  Nearest nearest = Nearest::PreferFloor;
  double cubic = -0.75, extrapolation = 0;
  bool excludeOutside = false, antialias = false;
  std::vector<Resized> dims;
  mlir::Value roi; // tensor, for Crop
  DType roiType = DType::F32;
  llvm::SmallVector<int64_t> axes; // that scales, sizes and roi are of
};

/// `x` resized along dims[entry].
mlir::FailureOr<Tensor> resized(Node &n, const Resizing &r, size_t entry, const Tensor &x);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_RESIZING_H
