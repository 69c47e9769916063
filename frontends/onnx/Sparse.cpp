// Sparse tensors, which an import makes dense.
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/Payload.h"
#include "frontends/onnx/State.h"
#include <cstring>

using namespace attn;
using namespace attn::onnx;

/// Places of the values among the elements of `shape`, from indices [values] or [values, rank]; they have to ascend.
static std::optional<std::vector<int64_t>> readPlaces(const Payload &indices, llvm::ArrayRef<int64_t> shape,
                                                      int64_t elements, std::string &error) {
  bool isFlat = indices.shape.size() == 1;
  int64_t rank = isFlat ? 1 : shape.size();
  std::vector<int64_t> places;
  for (int64_t n = 0; n < indices.shape[0]; ++n) {
    int64_t place = 0;
    for (int64_t d = 0; d < rank; ++d) {
      int64_t index = *std::get<Expr>(*indices.element(n * rank + d)).constant();
      int64_t size = isFlat ? elements : shape[d];
      if (index < 0 || index >= size) {
        error = "has index " + std::to_string(index) + " of value " + std::to_string(n) + " outside [0, " +
                std::to_string(size) + ")" + (isFlat ? "" : ", its dimension " + std::to_string(d));
        return std::nullopt;
      }
      place = place * size + index;
    }
    if (n && place <= places.back()) {
      error = "has value " + std::to_string(n) + " at element " + std::to_string(place) + ", after one at element " +
              std::to_string(places.back()) + "; indices have to ascend";
      return std::nullopt;
    }
    places.push_back(place);
  }
  return places;
}

/// The number of elements of the dense tensor, whose bytes join `bytes`.
static std::optional<int64_t> readDims(const proto::SparseTensorProto &sparse, DType dtype, uint64_t &bytes,
                                       std::string &error) {
  llvm::ArrayRef<int64_t> shape(sparse.dims().data(), sparse.dims_size());
  if (shape.empty() || shape.size() > kMaxRank) {
    error = "has " + std::to_string(shape.size()) + " dimensions, expected 1 to " + std::to_string(kMaxRank);
    return std::nullopt;
  }
  for (int64_t size : shape)
    if (size < 1) {
      error = "has a dimension of size " + std::to_string(size) + ", expected at least 1";
      return std::nullopt;
    }
  std::optional<int64_t> own = checkedBytes(shape, dtypeBytes(dtype));
  if (!own || uint64_t(*own) > kMaxDenseBytes - bytes) {
    error = "of shape " + shapeText(shape) + " is sparse; dense it would have " +
            (own ? std::to_string(*own) : "more than " + std::to_string(kMaxTensorBytes)) + " bytes, and of " +
            std::to_string(kMaxDenseBytes) + " for all sparse tensors of a model " +
            std::to_string(kMaxDenseBytes - bytes) + " are left; store it dense, as external data";
    return std::nullopt;
  }
  bytes += *own;
  return *own / dtypeBytes(dtype);
}

std::optional<Payload> attn::onnx::readSparse(proto::SparseTensorProto &sparse, bool take, ExternalFiles &files,
                                              uint64_t &bytes, PayloadError &error) {
  auto fail = [&](std::string message) {
    error.message = std::move(message);
    return std::nullopt;
  };
  auto read = [&](proto::TensorProto &part, const char *place) {
    std::optional<Payload> payload = readPayload(part, take, files, error);
    error.message = payload ? "" : place + error.message;
    return payload;
  };
  std::optional<Payload> values = read(*sparse.mutable_values(), "in its values ");
  if (!values)
    return std::nullopt;
  std::optional<Payload> indices = read(*sparse.mutable_indices(), "in its indices ");
  if (!indices)
    return error.unsupported = false, std::nullopt;
  if (values->shape.size() != 1)
    return fail("has values of shape " + shapeText(values->shape) + ", expected 1 dimension");
  if (indices->dtype != DType::I64)
    return fail("has indices of " + dtypeName(indices->dtype).str() + ", expected int64");
  std::optional<int64_t> elements = readDims(sparse, values->dtype, bytes, error.message);
  if (!elements)
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> wide{values->shape[0], sparse.dims_size()};
  if (indices->shape != values->shape && indices->shape != wide)
    return fail("has indices of shape " + shapeText(indices->shape) + ", expected " + shapeText(values->shape) +
                " or " + shapeText(wide));
  llvm::ArrayRef<int64_t> shape(sparse.dims().data(), sparse.dims_size());
  std::optional<std::vector<int64_t>> places = readPlaces(*indices, shape, *elements, error.message);
  if (!places)
    return std::nullopt;

  size_t width = dtypeBytes(values->dtype);
  auto dense = std::make_shared<std::vector<char>>(*elements * width);
  for (auto [n, place] : llvm::enumerate(*places))
    memcpy(dense->data() + place * width, values->data.bytes.data() + n * width, width);
  Payload result;
  result.dtype = values->dtype;
  result.shape.assign(shape.begin(), shape.end());
  result.data = {llvm::ArrayRef<char>(*dense), dense};
  return result;
}

std::optional<Tensor> Node::sparseTensorAttr(llvm::StringRef name) {
  for (auto [key, attribute] : impl.node.attributes) {
    if (key != name)
      continue;
    PayloadError problem;
    // Not taken: a function's body may be imported again.
    auto &sparse = const_cast<proto::SparseTensorProto &>(attribute->sparse_tensor());
    std::optional<Payload> payload =
        readSparse(sparse, /*take=*/false, impl.state.files, impl.state.denseBytes, problem);
    if (payload)
      return impl.state.constant(impl.node.name, *payload, impl.loc);
    (problem.unsupported ? unsupported() : error()) << "tensor in attribute '" << name << "' " << problem.message;
    return std::nullopt;
  }
  return std::nullopt;
}
