#include "compiler/emit/cpu/LibraryTable.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/JSON.h"

namespace attn {

int32_t abiDType(llvm::StringRef name) {
  return llvm::StringSwitch<int32_t>(name)
      .Case("int8", ATTNRT_I8)
      .Case("int16", ATTNRT_I16)
      .Case("int32", ATTNRT_I32)
      .Case("int64", ATTNRT_I64)
      .Case("uint8", ATTNRT_U8)
      .Case("uint16", ATTNRT_U16)
      .Case("uint32", ATTNRT_U32)
      .Case("uint64", ATTNRT_U64)
      .Case("float16", ATTNRT_F16)
      .Case("float32", ATTNRT_F32)
      .Case("float64", ATTNRT_F64)
      .Case("bfloat16", ATTNRT_BF16)
      .Case("bool", ATTNRT_BOOL)
      .Case("float8_e4m3fn", ATTNRT_F8_E4M3FN)
      .Case("float8_e4m3fnuz", ATTNRT_F8_E4M3FNUZ)
      .Case("float8_e5m2", ATTNRT_F8_E5M2)
      .Case("float8_e5m2fnuz", ATTNRT_F8_E5M2FNUZ)
      .Case("float8_e8m0fnu", ATTNRT_F8_E8M0)
      .Case("float4_e2m1fn", ATTNRT_F4_E2M1)
      .Case("int4", ATTNRT_I4)
      .Case("uint4", ATTNRT_U4)
      .Case("int2", ATTNRT_I2)
      .Case("uint2", ATTNRT_U2)
      .Default(0);
}

static llvm::StringRef weightDType(mlir::Type type) {
  if (type.isF32())
    return "float32";
  if (type.isF64())
    return "float64";
  if (type.isF16())
    return "float16";
  if (type.isBF16())
    return "bfloat16";
  switch (type.isIndex() ? 64 : type.getIntOrFloatBitWidth()) {
  case 1:
    return "bool";
  case 8:
    return "int8";
  case 16:
    return "int16";
  case 32:
    return "int32";
  default:
    return "int64";
  }
}

namespace {

/// Builds the structs of abi.h as constants; each method mirrors one struct,
/// field by field, and LLVM's layout of a literal struct is C's.
class TableBuilder {
public:
  TableBuilder(llvm::Module &module)
      : module(module), context(module.getContext()), pointer(llvm::PointerType::getUnqual(context)),
        i32(llvm::Type::getInt32Ty(context)), i64(llvm::Type::getInt64Ty(context)) {}

  llvm::Constant *library(const LibraryDescription &d) {
    std::vector<llvm::Constant *> entries, weights;
    for (const EntryDescription &entry : d.entries)
      entries.push_back(global(this->entry(entry)));
    for (const WeightRow &row : d.weights)
      weights.push_back(weight(row));
    return global(
        make({number32(sizeof(attnrt_library)), number32(ATTNRT_ABI_VERSION), number32(entries.size()),
              number32(weights.size()), array(entries), array(weights), text(d.requiredCpuFeatures), text(d.target),
              text(d.compilerVersion), text(d.manifestJson), gpuCode(d), text(d.optionalCpuFeatures)}));
  }

private:
  llvm::Constant *entry(const EntryDescription &e) {
    std::vector<llvm::Constant *> inputs, outputs, messages, states;
    for (const TensorDescription &t : e.inputs)
      inputs.push_back(tensor(t));
    for (const TensorDescription &t : e.outputs)
      outputs.push_back(tensor(t));
    for (const std::string &message : e.messages)
      messages.push_back(text(message));
    for (const EntryDescription::State &state : e.states)
      states.push_back(make({number32(state.input), number32(state.output), number32(state.dim)}));
    return make({number32(sizeof(attnrt_entry)), number32(inputs.size()), number32(outputs.size()),
                 number32(messages.size()), number32(states.size()), number32(0), text(e.name),
                 module.getFunction(e.function), array(inputs), array(outputs), array(messages), array(states),
                 optionalInputs(e)});
  }

  llvm::Constant *optionalInputs(const EntryDescription &e) {
    std::vector<uint8_t> flags;
    for (const TensorDescription &t : e.inputs)
      flags.push_back(t.isOptional);
    return llvm::is_contained(flags, 1) ? global(llvm::ConstantDataArray::get(context, flags))
                                        : llvm::ConstantPointerNull::get(pointer);
  }

  llvm::Constant *tensor(const TensorDescription &t) {
    std::vector<llvm::Constant *> dims;
    for (auto [size, name] : llvm::zip_equal(t.shape, t.dimNames))
      dims.push_back(make({number64(size), text(name)}));
    return make({text(t.name), text(t.dtype), number32(abiDType(t.dtype)), number32(dims.size()), array(dims)});
  }

  llvm::Constant *weight(const WeightRow &row) {
    std::vector<llvm::Constant *> shape;
    for (int64_t size : row.shape)
      shape.push_back(number64(size));
    return make({text(row.name), number32(abiDType(weightDType(row.elementType))), number32(shape.size()), array(shape),
                 number64(row.offset), number64(row.size), text(row.layout)});
  }

  llvm::Constant *gpuCode(const LibraryDescription &d) {
    if (d.gpuImages.empty())
      return llvm::ConstantPointerNull::get(pointer);
    std::vector<llvm::Constant *> images, kernels;
    for (const GpuImage &image : d.gpuImages) {
      // PTX is text for the driver: with its terminating zero.
      llvm::Constant *bytes = llvm::ConstantDataArray::getString(context, image.bytes, /*AddNull=*/image.isPtx);
      images.push_back(
          make({number32(image.isPtx ? ATTNRT_IMAGE_PTX : ATTNRT_IMAGE_CUBIN), number32(image.arch),
                number32(image.exact), number32(0), global(bytes), number64(image.bytes.size() + image.isPtx)}));
    }
    for (const std::string &name : d.gpuKernels)
      kernels.push_back(text(name));
    return global(make({number32(sizeof(attnrt_gpu_code)), number32(images.size()), number32(kernels.size()),
                        number32(0), array(images), array(kernels)}));
  }

  llvm::Constant *number32(int64_t value) { return llvm::ConstantInt::get(i32, value); }
  llvm::Constant *number64(int64_t value) { return llvm::ConstantInt::get(i64, value); }
  llvm::Constant *make(std::initializer_list<llvm::Constant *> fields) {
    return llvm::ConstantStruct::getAnon(context, llvm::ArrayRef<llvm::Constant *>(fields.begin(), fields.size()));
  }
  llvm::Constant *global(llvm::Constant *value) {
    auto *variable = new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true,
                                              llvm::GlobalValue::PrivateLinkage, value, "attnrt_table");
    variable->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
    return variable;
  }
  llvm::Constant *array(llvm::ArrayRef<llvm::Constant *> elements) {
    if (elements.empty())
      return llvm::ConstantPointerNull::get(pointer);
    return global(
        llvm::ConstantArray::get(llvm::ArrayType::get(elements.front()->getType(), elements.size()), elements));
  }
  llvm::Constant *text(llvm::StringRef value) {
    llvm::Constant *&known = texts[value];
    if (!known)
      known = global(llvm::ConstantDataArray::getString(context, value, /*AddNull=*/true));
    return known;
  }

  llvm::Module &module;
  llvm::LLVMContext &context;
  llvm::PointerType *pointer;
  llvm::Type *i32, *i64;
  llvm::StringMap<llvm::Constant *> texts;
};

} // namespace

void emitLibraryTable(llvm::Module &module, const LibraryDescription &description) {
  llvm::Constant *library = TableBuilder(module).library(description);
  llvm::LLVMContext &context = module.getContext();
  auto *pointer = llvm::PointerType::getUnqual(context);
  auto *type = llvm::FunctionType::get(pointer, {llvm::Type::getInt32Ty(context)}, /*isVarArg=*/false);
  auto *query = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "attnrt_library_query", module);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "", query));
  // An older runtime gets nothing, and says so to its user.
  llvm::Value *serves = builder.CreateICmpUGE(query->getArg(0), builder.getInt32(description.neededAbi));
  builder.CreateRet(builder.CreateSelect(serves, library, llvm::ConstantPointerNull::get(pointer)));
}

//===----------------------------------------------------------------------===//
// Manifest
//===----------------------------------------------------------------------===//

static llvm::json::Array tensorsToJson(llvm::ArrayRef<TensorDescription> tensors) {
  llvm::json::Array result;
  for (const TensorDescription &t : tensors) {
    llvm::json::Array shape;
    for (auto [size, name] : llvm::zip_equal(t.shownShape(), t.shownNames())) {
      if (size >= 0)
        shape.push_back(size);
      else if (!name.empty())
        shape.push_back(llvm::json::fixUTF8(name));
      else
        shape.push_back(nullptr);
    }
    llvm::json::Object object{{"name", llvm::json::fixUTF8(t.name)}, {"dtype", t.dtype}, {"shape", std::move(shape)}};
    if (t.isOptional)
      object["optional"] = true;
    result.push_back(std::move(object));
  }
  return result;
}

/// An array that the compiler wrote.
static llvm::json::Value parseArray(llvm::StringRef text) {
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
  if (parsed)
    return std::move(*parsed);
  llvm::consumeError(parsed.takeError());
  return llvm::json::Array();
}

std::string makeManifest(const LibraryDescription &d, TargetAttr target, llvm::StringRef fusionJson,
                         llvm::StringRef productsJson) {
  llvm::json::Array entries, weights;
  for (const EntryDescription &entry : d.entries) {
    llvm::json::Object object{{"name", llvm::json::fixUTF8(entry.name)},
                              {"inputs", tensorsToJson(entry.inputs)},
                              {"outputs", tensorsToJson(entry.outputs)}};
    llvm::json::Object bounds;
    for (const EntryDescription::Bounds &dim : entry.dimBounds)
      bounds[dim.dim] = llvm::json::Object{{"min", dim.lower}, {"max", dim.upper}};
    if (!bounds.empty())
      object["dims"] = std::move(bounds);
    llvm::json::Array states;
    for (const EntryDescription::State &state : entry.states)
      states.push_back(llvm::json::Object{{"input", llvm::json::fixUTF8(entry.inputs[state.input].name)},
                                          {"output", llvm::json::fixUTF8(entry.outputs[state.output].name)},
                                          {"appends", state.dim >= 0},
                                          {"in_place", state.dim != -1}});
    if (!states.empty())
      object["states"] = std::move(states);
    if (entry.maxWorkspace)
      object["max_workspace_bytes"] = *entry.maxWorkspace;
    entries.push_back(std::move(object));
  }
  for (const WeightRow &row : d.weights)
    weights.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(row.name)},
                                         {"dtype", weightDType(row.elementType)},
                                         {"shape", llvm::json::Array(row.shape)},
                                         {"offset", row.offset},
                                         {"size", row.size},
                                         {"layout", row.layout}});
  llvm::json::Object manifest{{"abi_version", ATTNRT_ABI_VERSION},
                              {"needed_abi", d.neededAbi},
                              {"compiler", d.compilerVersion},
                              {"target", llvm::json::Object{{"triple", d.target},
                                                            {"cpu", target.getCpu()},
                                                            {"isa", target.getIsa()},
                                                            {"required_cpu_features", d.requiredCpuFeatures},
                                                            {"optional_cpu_features", d.optionalCpuFeatures}}},
                              {"digest", "blake3 of 1 MiB leaves, in the footer"},
                              {"entries", std::move(entries)},
                              {"weights", std::move(weights)},
                              {"fusion", parseArray(fusionJson)}};
  if (productsJson != "[]")
    manifest["products"] = parseArray(productsJson);
  llvm::json::Array regions;
  for (const RegionDescription &region : d.regions) {
    llvm::json::Array nodes;
    for (const std::string &node : region.nodes)
      nodes.push_back(llvm::json::fixUTF8(node));
    regions.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(region.name)},
                                         {"entry", llvm::json::fixUTF8(region.entry)},
                                         {"nodes", std::move(nodes)}});
  }
  if (!regions.empty())
    manifest["regions"] = std::move(regions);
  llvm::json::Array images;
  for (const GpuImage &image : d.gpuImages)
    images.push_back(llvm::json::Object{{"arch", ("sm_" + llvm::Twine(image.arch) + (image.exact ? "a" : "")).str()},
                                        {"form", image.isPtx ? "ptx" : "cubin"}});
  if (!images.empty())
    manifest["gpu"] = std::move(images);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv("{0}", llvm::json::Value(std::move(manifest)));
  return text;
}

} // namespace attn
