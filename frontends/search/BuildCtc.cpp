// The entry of --generate=ctc-...: what an entry's scores of frames spell.
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/BuildSearch.h"
#include "frontends/search/StepRoles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

namespace {
class CtcBuilder {
public:
  CtcBuilder(ModuleOp module, const SearchOptions &options)
      : module(module), options(options), b(module.getContext()), loc(module.getLoc()) {}

  LogicalResult run() {
    step = findEntry(module, options.step);
    if (!step)
      return module.emitError() << "has no entry '" << options.step
                                << "' of which --generate decodes the scores: name it with --step= ("
                                << listEntries(module) << ")";
    if (findEntry(module, options.entry))
      return module.emitError() << "has an entry '" << options.entry << "' already";
    if (failed(findScores()))
      return failure();
    b.setInsertionPointToEnd(module.getBody());
    entry = func::FuncOp::create(b, loc, "entry." + options.entry, step.getFunctionType());
    entry->setAttr(AttnDialect::kEntryAttr, b.getStringAttr(options.entry));
    if (ArrayAttr inputs = step.getArgAttrsAttr())
      entry.setArgAttrsAttr(inputs);
    b.setInsertionPointToStart(entry.addEntryBlock());
    results = SmallVector<Value>(func::CallOp::create(b, loc, step, entry.getArguments()).getResults());
    FailureOr<Value> frames = findFrames();
    if (failed(frames))
      return failure();
    finish(*frames);
    return success();
  }

private:
  InFlightDiagnostic error() { return step.emitError() << "the entry '" << options.step << "' "; }

  LogicalResult findScores() {
    auto canBe = [&](int64_t n) {
      auto type = cast<RankedTensorType>(step.getResultTypes()[n]);
      return type.getRank() == 3 && type.getElementType().isF32();
    };
    auto take = [&](StringRef name) {
      for (int64_t n = 0, e = step.getNumResults(); n < e && scores < 0; ++n)
        if (nameOfOutput(step, n) == name && canBe(n))
          scores = n;
    };
    if (!options.logits.empty()) {
      take(options.logits);
      if (scores < 0)
        return error() << "has no output '" << printableName(options.logits)
                       << "' of scores [batch, time, labels] in float32";
    }
    for (StringRef name : {"log_probs", "logprobs", "logits", "ctc", "scores", "output"})
      take(name);
    for (int64_t n = 0, e = step.getNumResults(); n < e && scores < 0; ++n)
      if (canBe(n) && llvm::none_of(llvm::seq(e), [&](int64_t m) { return m != n && canBe(m); }))
        scores = n;
    if (scores < 0)
      return error() << "has no output that can be told to hold scores [batch, time, labels] in float32: name it with "
                        "--logits=";
    int64_t labels = cast<RankedTensorType>(step.getResultTypes()[scores]).getDimSize(2);
    if (options.blank < 0 || (!ShapedType::isDynamic(labels) && options.blank >= labels))
      return step.emitError() << "the blank " << options.blank << " is none of the " << labels
                              << " labels of the entry '" << options.step << "'";
    return success();
  }

  /// [batch]: an output or input of the entry, or all there are.
  FailureOr<Value> findFrames() {
    int64_t batchDim = options.timeMajor ? 1 : 0;
    if (options.frames.empty()) {
      Value given = results[scores];
      Value time = tensor::DimOp::create(b, loc, given, 1 - batchDim);
      Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), time);
      OpFoldResult rows = tensor::getMixedSize(b, loc, given, batchDim);
      Value empty = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{rows}, b.getI64Type());
      return linalg::FillOp::create(b, loc, number, empty).getResult(0);
    }
    Value found;
    for (unsigned n = 0; n < step.getNumResults() && !found; ++n)
      if (nameOfOutput(step, n) == options.frames)
        found = results[n];
    for (unsigned n = 0; n < step.getNumArguments() && !found; ++n)
      if (nameOfInput(step, n) == options.frames)
        found = entry.getBody().front().getArgument(n);
    auto type = found ? dyn_cast<RankedTensorType>(found.getType()) : nullptr;
    if (!type || type.getRank() != 1 || !type.getElementType().isInteger() || type.getElementTypeBitWidth() < 32)
      return error() << "has no output or input '" << printableName(options.frames)
                     << "' of numbers of frames [batch] in int32 or int64";
    if (type.getElementTypeBitWidth() == 64)
      return found;
    Value empty = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, found), b.getI64Type());
    AffineMap identity = b.getMultiDimIdentityMap(1);
    return linalg::GenericOp::create(b, loc, empty.getType(), found, empty, {identity, identity},
                                     utils::IteratorType::parallel,
                                     [](OpBuilder &body, Location at, ValueRange args) {
                                       Value wide = arith::ExtSIOp::create(body, at, body.getI64Type(), args[0]);
                                       linalg::YieldOp::create(body, at, wide);
                                     })
        .getResult(0);
  }

  void finish(Value frames) {
    bool isBeam = options.kind == "ctc-beam";
    SmallVector<int64_t> items{kDynamic};
    if (isBeam)
      items.push_back(options.nBest);
    SmallVector<int64_t> each = items;
    each.push_back(kDynamic);
    Type types[] = {RankedTensorType::get(each, b.getI64Type()), RankedTensorType::get(items, b.getI64Type()),
                    RankedTensorType::get(items, b.getF32Type())};
    auto found = CtcSearchOp::create(b, loc, types[0], types[1], types[2], results[scores], frames, options.blank,
                                     isBeam ? b.getI64IntegerAttr(options.width) : IntegerAttr(),
                                     isBeam ? options.nBest : 1, options.timeMajor);
    func::ReturnOp::create(b, loc, found.getResults());
    entry.setFunctionType(b.getFunctionType(entry.getArgumentTypes(), types));
    std::string rows = dimsOfOutput(step, scores)[options.timeMajor ? 1 : 0].str(), length = "generated_length";
    for (unsigned n = 0; n < step.getNumArguments(); ++n)
      while (llvm::is_contained(dimsOfInput(step, n), length))
        length += "'";
    auto describe = [&](StringRef name, StringRef dtype, ArrayRef<StringRef> dims) -> Attribute {
      return b.getDictionaryAttr({b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
                                  b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtype)),
                                  b.getNamedAttr(AttnDialect::kDimsAttr, b.getStrArrayAttr(dims))});
    };
    SmallVector<StringRef> dims{rows};
    if (isBeam)
      dims.push_back("");
    SmallVector<StringRef> all = dims;
    all.push_back(length);
    entry.setResAttrsAttr(b.getArrayAttr(
        {describe("tokens", "int64", all), describe("lengths", "int64", dims), describe("scores", "float32", dims)}));
  }

  ModuleOp module;
  const SearchOptions &options;
  OpBuilder b;
  Location loc;
  func::FuncOp step, entry;
  SmallVector<Value> results;
  int64_t scores = -1;
};
} // namespace

LogicalResult attn::buildCtcSearch(ModuleOp module, const SearchOptions &options) {
  return CtcBuilder(module, options).run();
}
