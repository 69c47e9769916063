#include "tools/interpret/InterpretCommand.h"

#include "tools/attn-run/runner/Inputs.h"
#include "tools/attn-run/runner/Npy.h"
#include "tools/interpret/Interpreter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace attn::interpret {
namespace {

struct Request {
  std::string file = "-", entry, output;
  std::vector<std::string> inputs;
};

int fail(const Twine &message) {
  llvm::errs() << "attn-opt: error: " << message << '\n';
  return 1;
}

std::optional<std::string> parse(int argc, char **argv, Request &request) {
  bool hasFile = false;
  for (int n = 1; n < argc; ++n) {
    StringRef word = argv[n];
    if (word == "--attn-interpret")
      continue;
    if (word.consume_front("--entry="))
      request.entry = word.str();
    else if (word.consume_front("--input="))
      request.inputs.push_back(word.str());
    else if (word.consume_front("--output="))
      request.output = word.str();
    else if ((word.starts_with("-") && word != "-") || hasFile)
      return ("'" + word + "' does not go with --attn-interpret").str();
    else {
      request.file = word.str();
      hasFile = true;
    }
  }
  return std::nullopt;
}

/// `tensor` as the value of an argument of type `type`.
FailureOr<DatumRef> toDatum(const runner::Tensor &tensor, Type type, unsigned n) {
  Type element = getElementTypeOrSelf(type);
  auto shaped = dyn_cast<RankedTensorType>(type);
  ArrayRef<int64_t> shape = tensor.shape();
  if (shaped ? failed(verifyCompatibleShape(shaped.getShape(), shape)) : !shape.empty()) {
    llvm::errs() << "attn-opt: error: input " << n << " has shape " << runner::printShape(tensor.shape())
                 << ", expected " << type << '\n';
    return failure();
  }
  if (isa<FloatType>(element) != runner::isFloat(tensor.dtype()) || countElements(shape) < 0) {
    llvm::errs() << "attn-opt: error: input " << n << " does not fit type " << type << '\n';
    return failure();
  }
  auto datum = std::make_shared<Datum>();
  datum->shape.assign(shape.begin(), shape.end());
  for (uint64_t i = 0; i != tensor.elements(); ++i)
    datum->data.push_back(isa<FloatType>(element) ? Scalar::of(tensor.at(i))
                                                  : fit(Scalar::of(tensor.intAt(i)), element));
  return DatumRef(datum);
}

void print(const Datum &datum, Type type, unsigned n) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(type));
  llvm::outs() << "result " << n << ": ";
  for (int64_t size : datum.shape)
    llvm::outs() << size << 'x';
  llvm::outs() << (isFloat ? "f64" : "i64") << " =";
  for (Scalar element : datum.data) {
    llvm::outs() << ' ';
    if (isFloat)
      llvm::outs() << llvm::format("%.9g", element.real);
    else
      llvm::outs() << element.integer;
  }
  llvm::outs() << '\n';
}

bool write(const Datum &datum, Type type, const std::string &path) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(type));
  runner::Tensor tensor;
  std::string error;
  if (!runner::Tensor::create(isFloat ? ATTNRT_F64 : ATTNRT_I64, {datum.shape.begin(), datum.shape.end()}, tensor,
                              error))
    return fail(error), false;
  for (auto [i, element] : llvm::enumerate(datum.data)) {
    if (isFloat)
      tensor.set(i, element.real);
    else
      tensor.setInt(i, element.integer);
  }
  return runner::writeNpy(path, tensor, error) || (fail(error), false);
}

func::FuncOp findEntry(ModuleOp module, StringRef name) {
  if (!name.empty())
    return module.lookupSymbol<func::FuncOp>(name);
  auto functions = module.getOps<func::FuncOp>();
  if (llvm::hasSingleElement(functions))
    return *functions.begin();
  return module.lookupSymbol<func::FuncOp>("main");
}

} // namespace

int interpretMain(int argc, char **argv, DialectRegistry &registry) {
  Request request;
  if (std::optional<std::string> error = parse(argc, argv, request))
    return fail(*error);
  std::string error;
  auto file = openInputFile(request.file, &error);
  if (!file)
    return fail(error);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  SourceMgrDiagnosticHandler handler(sources, &context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return 1;
  func::FuncOp entry = findEntry(*module, request.entry);
  if (!entry)
    return fail("the file has no function '" + (request.entry.empty() ? "main" : request.entry) + "'");
  if (request.inputs.size() != entry.getNumArguments())
    return fail("@" + entry.getName() + " takes " + Twine(entry.getNumArguments()) + " inputs, got " +
                Twine(request.inputs.size()));
  SmallVector<DatumRef> arguments;
  for (auto [n, text] : llvm::enumerate(request.inputs)) {
    runner::Tensor tensor;
    if (runner::parseTensor(text, tensor, error) != runner::Fault::None)
      return fail(error);
    FailureOr<DatumRef> datum = toDatum(tensor, entry.getArgumentTypes()[n], n);
    if (failed(datum))
      return 1;
    arguments.push_back(*datum);
  }
  Interpreter interpreter;
  FailureOr<SmallVector<DatumRef>> results = interpreter.call(entry, arguments);
  if (failed(results))
    return 1;
  for (auto [n, datum] : llvm::enumerate(*results)) {
    Type type = entry.getResultTypes()[n];
    if (request.output.empty())
      print(*datum, type, n);
    else if (!write(*datum, type, request.output + std::to_string(n) + ".npy"))
      return 1;
  }
  return 0;
}

} // namespace attn::interpret
