#include "tools/attnc/Request.h"
#include "compiler/emit/gpu/GpuArch.h"
#include "passes/graph/Pipeline.h"
#include "tools/attnc/AnnotatedModel.h"
#include "tools/attnc/GenerateOptions.h"
#include "tools/options/LibraryArgument.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/BinaryFormat/Magic.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

const char *extension(EmitKind kind) { return kind == EmitKind::Lib ? ".so" : kind == EmitKind::Obj ? ".o" : ""; }

/// "a, b, c" in indented lines that fit a terminal.
std::string listInLines(ArrayRef<StringRef> names) {
  constexpr size_t kWidth = 100, kIndent = 2;
  size_t columns = sys::Process::StandardErrColumns(), width = columns ? std::min(columns, kWidth) : kWidth;
  std::string lines;
  size_t column = width;
  for (const StringRef &name : names) {
    if (column + name.size() + 2 > width) {
      lines += '\n';
      column = kIndent;
    } else {
      lines += ' ';
      ++column;
    }
    lines += name.str() + (&name == &names.back() ? "" : ",");
    column += name.size() + 1;
  }
  return lines;
}

void checkCpu(CommandLine &line, StringRef cpu) {
  SmallVector<StringRef> known;
  X86::fillValidCPUArchList(known, /*Only64Bit=*/true);
  sort(known);
  if (cpu == "native" || is_contained(known, cpu))
    return;
  StringRef nearest;
  unsigned best = std::min<size_t>(3, cpu.size() / 3);
  for (StringRef name : known)
    if (unsigned distance = cpu.edit_distance(name, /*AllowReplacements=*/true, best); distance <= best) {
      best = distance;
      nearest = name;
    }
  line.fail("unknown CPU '" + cpu + "'" +
            (nearest.empty() ? "; known are native (this machine's) and" + listInLines(known)
                             : ", did you mean '" + nearest.str() + "'?"));
}

uint64_t machineMemory() {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? uint64_t(pages) * uint64_t(size) : 0;
}

/// A folder of models: the parts of one generation, or each an entry.
void readFolder(CommandLine &line, StringRef path, CompileJob &job) {
  std::string error;
  // Messages call the folder by its name, which nothing else follows.
  job.input = (path.rtrim('/').empty() ? path : path.rtrim('/')).str();
  job.folder = readHubFolder(path, error);
  if (!job.folder)
    return line.reject(error);
  if (line.has(OPT_generate)) {
    if (job.folder->decoder.empty()) {
      std::vector<std::string> found;
      for (const auto &[name, file] : job.folder->models)
        found.push_back(sys::path::filename(file).str());
      line.reject(path +
                  ": has no decoder to generate with: decoder_model.onnx, decoder_model_merged.onnx, "
                  "decoder_with_past_model.onnx or model.onnx; of variants (" +
                  join(found, ", ") + ") put those to be taken into a folder under these names");
    }
    return;
  }
  job.entries = job.folder->models;
  job.folder.reset();
}

/// "model.onnx", or "encode=encoder.onnx step=decoder.onnx": entries of one library.
void readInputs(CommandLine &line, CompileJob &job) {
  std::vector<StringRef> inputs = line.positional();
  if (inputs.empty())
    return line.fail("no model given");
  if (inputs.size() == 1 && sys::fs::is_directory(inputs[0]))
    return readFolder(line, inputs[0], job);
  if (inputs[0] == "cache" && !sys::fs::exists(inputs[0]))
    return line.reject("'cache' is a command of the Python package: python -m attnc " + join(inputs, " "));
  for (StringRef input : inputs) {
    auto [name, path] = input.split('=');
    bool isName = !name.empty() && !isDigit(name[0]) && all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
    bool isEntry = isName && !path.empty() && !sys::fs::exists(input);
    if (!isName && !path.empty() && sys::fs::exists(path) && !sys::fs::exists(input))
      return line.fail("'" + name + "' cannot be the name of an entry: letters, digits and '_', not a digit first");
    if (!isEntry && inputs.size() > 1)
      return line.fail("several models are given as NAME=MODEL.onnx, each for an entry; '" + input + "' is not");
    if (isEntry && path.ends_with(".mlir"))
      return line.fail("textual IR names its entries itself: give '" + path + "' alone");
    if (!isEntry)
      path = input;
    else if (any_of(job.entries, [name = name](const auto &entry) { return entry.first == name; }))
      return line.fail("entry '" + name + "' is given twice");
    else
      job.entries.push_back({name.str(), path.str()});
    if (job.input.empty())
      job.input = path.str();
  }
  // A wrong name of a model is told with all else that is wrong; one of a folder makes other options look wrong.
  if (job.entries.empty() && !LibraryArgument::isModel(job.input) && !sys::fs::exists(job.input))
    line.reject(job.input + ": no such file or folder");
}

void readTarget(CommandLine &line, CompileOptions &options) {
  StringRef target = line.text(OPT_target, "cpu");
  if (target != "cpu" && target != "cuda")
    return line.fail("--target expects cpu or cuda, not '" + target + "'");
  if (target == "cpu" && line.has(OPT_gpu_arch))
    return line.fail("--gpu-arch is for --target=cuda");
  if (target == "cpu" && line.has(OPT_allow_host_ops))
    return line.fail("--allow-host-ops is for --target=cuda");
  if (target == "cpu" && options.weights == "fp8")
    return line.fail("--weights=fp8 is for --target=cuda; on a CPU --weights=int8 takes as many bits");
  if (target == "cpu" && options.emit == EmitKind::Ptx)
    return line.fail("--emit=ptx is for --target=cuda");
  if (target == "cpu")
    return;
  if (options.weights == "fp8" && options.precision == "int8")
    line.fail("--weights=fp8 and --precision=int8 would each store weights of products: leave one of them out");
  if (options.weights == "bf16")
    line.fail(
        "--weights=bf16 is for --target=cpu; for a GPU --precision=bf16|f16 stores weights of products in 16 bits");
  if (line.has(OPT_mark_regions))
    line.fail("--mark-regions (attn-bench --breakdown and --roofline) is for --target=cpu; attn-bench --profile shows "
              "kernels");
  options.gpuArchs = line.text(OPT_gpu_arch, "sm_80").str();
  options.allowHostOps = line.has(OPT_allow_host_ops);
  std::string error;
  if (parseGpuArchs(options.gpuArchs, error).empty())
    line.fail(error);
}

/// --fp32-math, once --weights and --precision are known.
void readProducts(CommandLine &line, CompileOptions &options) {
  StringRef math = line.text(OPT_fp32_math, "f32");
  std::string flag = ("--fp32-math=" + math).str();
  if (math == "f32")
    return;
  if (math != "bf16x3" && math != "bf16x6")
    return line.fail("--fp32-math expects f32, bf16x3 or bf16x6, not '" + math + "'");
  if (line.text(OPT_target, "cpu") != "cpu")
    return line.fail(flag + " is for --target=cpu");
  if (options.weights != "f32" || options.precision != "f32")
    return line.fail(flag + " is about products of f32: leave out --weights and --precision");
  if (options.optLevel == 0)
    return line.fail(flag + " needs kernels, which -O0 does not choose");
  options.precision = math.str();
}

void readEmit(CommandLine &line, CompileOptions &options) {
  StringRef emit = line.text(OPT_emit, "lib");
  auto kind = StringSwitch<std::optional<EmitKind>>(emit)
                  .Case("attn", EmitKind::Attn)
                  .Case("linalg", EmitKind::Linalg)
                  .Case("llvm", EmitKind::Llvm)
                  .Case("ptx", EmitKind::Ptx)
                  .Case("obj", EmitKind::Obj)
                  .Case("lib", EmitKind::Lib)
                  .Default(std::nullopt);
  if (!kind)
    line.fail("--emit expects attn, linalg, llvm, ptx, obj or lib, not '" + emit + "'");
  options.emit = kind.value_or(EmitKind::Lib);
}

void readLevel(CommandLine &line, CompileOptions &options) {
  StringRef level = line.text(OPT_O, "3");
  if (level.size() != 1 || level[0] < '0' || level[0] > '3')
    line.fail("-O expects a level from 0 to 3, not '" + level + "'");
  else
    options.optLevel = level[0] - '0';
}

/// What --precision may be.
ArrayRef<StringRef> precisionsOf(StringRef target) {
  static constexpr StringRef cpu[] = {"f32", "bf16", "int8"}, cuda[] = {"f32", "tf32", "bf16", "f16", "int8"};
  return target == "cuda" ? ArrayRef(cuda) : ArrayRef(cpu);
}

/// In which types weights are stored and products made.
void readTypes(CommandLine &line, CompileOptions &options) {
  options.weights = line.text(OPT_weights, "f32").str();
  if (!isWeightStorage(options.weights))
    line.fail("--weights expects f32, bf16, int8, int8:GROUP, fp8 or int4:BLOCK (of 16, 32, 64, 128 or 256), not '" +
              options.weights + "'");
  else if (options.weights != "f32" && options.optLevel == 0)
    line.fail("--weights=" + options.weights + " needs kernels, which -O0 does not choose");
  options.precision = line.text(OPT_precision, "f32").str();
  StringRef precision = options.precision;
  ArrayRef<StringRef> known = precisionsOf(line.text(OPT_target, "cpu"));
  if (!is_contained(known, precision))
    line.fail("--precision expects " + join(known.drop_back(), ", ") + " or " + known.back() + ", not '" + precision +
              "'" + (is_contained(precisionsOf("cuda"), precision) ? ", which is for --target=cuda" : ""));
  else if (options.precision != "f32" && options.optLevel == 0)
    line.fail("--precision=" + options.precision + " needs kernels, which -O0 does not choose");
  readProducts(line, options);
}

/// --expose-attention and as what.
void readExposure(CommandLine &line, CompileOptions &options) {
  for (StringRef node : line.all(OPT_expose_attention))
    options.exposedNodes.push_back(node.str());
  if (line.has(OPT_expose_attention_as) && options.exposedNodes.empty())
    line.fail("--expose-attention-as belongs to --expose-attention");
  if (!options.exposedNodes.empty() && options.optLevel == 0)
    line.fail("--expose-attention shows fused attentions, and -O0 fuses none");
  for (StringRef word : split(line.text(OPT_expose_attention_as, "weights"), ',')) {
    if (!isExposure(word))
      line.fail("--expose-attention-as expects weights, head-mean, argmax, entropy or top-k:K, K from 1 to " +
                Twine(kMaxExposedTopK) + ", not '" + word + "'");
    options.exposedAs.push_back(word.str());
  }
}

void readCompileOptions(CommandLine &line, CompileOptions &options) {
  readEmit(line, options);
  readLevel(line, options);
  options.cpu = line.text(OPT_mcpu, "native").str();
  checkCpu(line, options.cpu);
  readTypes(line, options);
  options.cacheDir = line.text(OPT_cache_dir).str();
  if (line.has(OPT_cache_dir))
    if (std::error_code error = sys::fs::create_directories(options.cacheDir))
      line.fail("cannot make the folder '" + options.cacheDir + "' of --cache-dir: " + error.message());
  StringRef masks = line.text(OPT_masks, "proved");
  if (masks != "proved" && masks != "exact")
    line.fail("--masks expects proved or exact, not '" + masks + "'");
  options.exactMasks = masks == "exact";
  readExposure(line, options);
  readTarget(line, options);
  options.printIrAfterAll = line.has(OPT_mlir_print_ir_after_all);
  options.dumpIrDir = line.text(OPT_dump_ir).str();
  options.marksRegions = line.has(OPT_mark_regions);
  options.timing = line.has(OPT_mlir_timing);
  for (StringRef pass : line.all(OPT_disable_pass)) {
    if (!is_contained(optionalPasses(), pass))
      line.fail("--disable-pass: no pass '" + pass + "'; those that can be left out are " +
                join(optionalPasses(), ", "));
    options.disabledPasses.push_back(pass.str());
  }
}

/// What an import makes of a model comes too late for IR.
void checkImported(CommandLine &line, StringRef input) {
  if (!input.ends_with(".mlir"))
    return;
  for (auto [option, flag] : {std::pair(OPT_dim, "--dim"),
                              {OPT_shape, "--shape"},
                              {OPT_absent, "--absent"},
                              {OPT_keep_output, "--keep-output"},
                              {OPT_max_loop_iterations, "--max-loop-iterations"}})
    if (line.has(option))
      line.fail(Twine(flag) + " says how a model is imported, and '" + input +
                "' is IR; give it to the command that wrote it with --emit=attn");
}

void readImportOptions(CommandLine &line, onnx::ImportOptions &options) {
  for (auto &[name, range] : line.dims()) {
    if (range.lower == range.upper)
      options.dims[name] = range.lower;
    else
      options.dimRanges[name] = {range.lower, range.upper};
  }
  for (auto &[name, shape] : line.shapes())
    options.shapes[name] = shape;
  for (StringRef name : line.all(OPT_absent))
    options.absent.insert(name.str());
  for (StringRef name : line.all(OPT_keep_output))
    options.outputs.insert(name.str());
  options.maxLoopIterations = line.number(OPT_max_loop_iterations, options.maxLoopIterations, 1, INT64_MAX);
}

/// --generate, --own-state and what belongs to them.
void readStates(CommandLine &line, CompileJob &job) {
  job.search = readGenerateOptions(line, job.folder ? StringRef(job.input) : "");
  job.ownState = line.has(OPT_own_state);
  if (job.search && line.has(OPT_keep_output))
    line.fail("--keep-output is for models without --generate, whose function returns tokens, lengths and scores");
  if (job.ownState)
    job.states = readStatePairs(line);
  else if (line.has(OPT_state) && !job.search)
    line.fail("--state belongs to --own-state and --generate");
  if (job.ownState && !job.compile.gpuArchs.empty())
    line.fail("--own-state is for --target=cpu: on a GPU a library keeps no state yet");
}

/// --cache, once it is known what the library keeps and for what it is.
void readCache(CommandLine &line, CompileJob &job) {
  CompileOptions &options = job.compile;
  options.cache = line.text(OPT_cache, "model").str();
  std::string flag = "--cache=" + options.cache;
  if (options.cache == "model")
    return;
  if (options.cache != "int8" && options.cache != "fp8")
    return line.fail("--cache expects model, int8 or fp8, not '" + options.cache + "'");
  if (!job.ownState && !job.search)
    return line.fail(flag + " is about caches that a library keeps: give " +
                     (options.gpuArchs.empty() ? "--own-state or --generate" : "--generate"));
  if (options.cache == "fp8" && options.gpuArchs.empty())
    return line.fail("--cache=fp8 is for --target=cuda: on a CPU caches in 8 bits are those of --cache=int8");
  if (options.optLevel == 0)
    line.fail(flag + " needs kernels, which -O0 does not choose");
}

/// --calibrate.
void readCalibration(CommandLine &line, Request &request) {
  request.calibration = line.text(OPT_calibrate).str();
  if (!line.has(OPT_calibrate))
    return;
  const CompileJob &job = request.job;
  if (request.calibration.empty())
    line.fail("--calibrate expects a file of numpy.savez");
  if (job.entries.size() > 1 || job.folder || job.search)
    line.fail("--calibrate takes one model, and no --generate");
  if (job.compile.weights == "f32" && job.compile.precision == "f32" && job.compile.cache == "model")
    line.fail("--calibrate measures what fewer bits cost, and all is in f32: give --weights, --precision or --cache");
  if (job.compile.emit != EmitKind::Lib)
    line.fail("--calibrate runs a model library, not --emit=" + line.text(OPT_emit, "lib"));
}

/// --annotate.
void readAnnotated(CommandLine &line, CompileJob &job) {
  job.annotated = line.text(OPT_annotate).str();
  if (!line.has(OPT_annotate))
    return;
  if (!isAnnotatedName(job.annotated))
    line.fail("--annotate expects FILE.onnx (for Netron) or FILE.json (for Model Explorer), not '" + job.annotated +
              "'");
  if (job.entries.size() > 1 || job.folder || job.search || !StringRef(job.input).ends_with(".onnx"))
    line.fail("--annotate takes one ONNX model, and no --generate");
  if (sys::fs::equivalent(job.annotated, job.input))
    line.fail("--annotate would write over the model '" + job.input + "'");
}

/// What is asked for beside the output: limits, reports and checks.
void readReports(CommandLine &line, Request &request) {
  request.limits.memoryBytes = line.bytes(OPT_max_memory, machineMemory());
  request.limits.seconds = line.real(OPT_timeout, 0);
  request.fusionReports = line.files(OPT_fusion_report);
  request.header = line.text(OPT_emit_header).str();
  StringRef emit = line.text(OPT_emit, "lib");
  const CompileOptions &options = request.job.compile;
  if (!request.header.empty() && options.emit != EmitKind::Lib)
    line.fail("--emit-header describes a model library, not --emit=" + emit);
  request.requireFused = line.number(OPT_require_fused, 0, 0, UINT32_MAX);
  request.json = line.has(OPT_json);
  request.progress = line.has(OPT_progress);
  readAnnotated(line, request.job);
  request.job.profile = line.text(OPT_profile).str();
  if (request.job.profile == "-")
    line.fail("--profile expects a file: standard output may have the IR");
  request.verifyFusion = line.has(OPT_verify_fusion);
  if (!request.verifyFusion)
    return;
  auto alone = [](StringRef model) { return ("as in 'attnc " + model + " --verify-fusion'").str(); };
  if (request.job.folder)
    line.fail("--verify-fusion does not work with --generate, which adds a search: check the models in '" +
              request.job.input + "' one by one, " + alone(request.job.folder->decoder));
  else if (request.job.entries.size() > 1)
    line.fail("--verify-fusion takes one model: check each alone, " + alone(request.job.entries.front().second));
  if (options.weights != "f32" || options.precision != "f32" || options.cache != "model")
    line.fail("--verify-fusion compares forms in f32: leave out --weights, --precision, --fp32-math and --cache; "
              "attn-run --compare=f32 says what they cost");
  if (!options.exposedNodes.empty())
    line.fail("--verify-fusion compares the model's own outputs: leave out --expose-attention");
  if (options.optLevel == 0)
    line.fail("--verify-fusion compares with what -O0 makes: leave out -O0");
  if (options.emit != EmitKind::Lib)
    line.fail("--verify-fusion runs a model library, not --emit=" + emit);
}

/// Two files of one name would be one, the later written.
void checkApart(CommandLine &line, const Request &request) {
  std::vector<std::pair<StringRef, StringRef>> files{{"-o", request.output},
                                                     {"--emit-header", request.header},
                                                     {"--annotate", request.job.annotated},
                                                     {"--profile", request.job.profile}};
  for (const std::string &report : request.fusionReports)
    files.insert(files.begin() + 1, {"--fusion-report", report});
  auto isOne = [](StringRef a, StringRef b) {
    SmallString<128> paths[] = {a, b};
    for (SmallString<128> &path : paths) {
      (void)sys::fs::make_absolute(path);
      sys::path::remove_dots(path, /*remove_dot_dot=*/true);
    }
    return paths[0] == paths[1];
  };
  for (auto first = files.begin(); first != files.end(); ++first)
    for (auto second = first + 1; second != files.end(); ++second)
      if (!first->second.empty() && !second->second.empty() && first->second != "-" &&
          isOne(first->second, second->second))
        line.fail(first->first + " and " + second->first + " would both be '" + first->second + "'");
}

bool isLibrary(const std::string &path) {
  file_magic magic;
  return !identify_magic(path, magic) && magic == file_magic::elf_shared_object;
}

/// Where the output goes, and that nothing else goes there.
void readOutput(CommandLine &line, Request &request) {
  const CompileJob &job = request.job;
  StringRef suffix = extension(job.compile.emit);
  bool isText = suffix.empty();
  SmallString<128> beside(sys::path::filename(job.input));
  if (job.folder)
    beside += suffix;
  else
    sys::path::replace_extension(beside, suffix);
  request.output = line.text(OPT_o, isText ? "-" : beside.str()).str();
  if (job.entries.size() > 1 && !isText && !line.has(OPT_o))
    line.fail("a library of several models needs a name: -o FILE");
  if (request.output.empty())
    line.fail("-o expects the name of a file");
  else if (sys::fs::equivalent(request.output, job.input) && !isLibrary(job.input)) // which the compile says
    line.fail("the output '" + request.output + "' is the model itself");
  if (request.output == "-" && !isText)
    line.fail("--emit=" + line.text(OPT_emit, "lib") + " cannot be written to standard output");
  bool printsReport = is_contained(request.fusionReports, "-");
  if (request.json && printsReport)
    line.fail("--json and --fusion-report=- would both write to standard output");
  if (request.output == "-" && (request.json || printsReport))
    line.fail("standard output cannot take both the IR and a report: name a file with -o");
  request.reproducer = line.text(OPT_reproducer).str();
  if (request.reproducer.empty())
    request.reproducer =
        (request.output == "-" ? sys::path::stem(job.input).str() : request.output) + ".reproducer.mlir";
}

} // namespace

Request readRequest(CommandLine &line) {
  Request request;
  readInputs(line, request.job);
  if (line.hasRejectedFile()) // what would be said of --generate follows from that
    return request;
  readCompileOptions(line, request.job.compile);
  checkImported(line, request.job.input);
  readImportOptions(line, request.job.import);
  readStates(line, request.job);
  readCache(line, request.job);
  readReports(line, request);
  readCalibration(line, request);
  readOutput(line, request);
  checkApart(line, request);
  request.arguments = line.argumentsBesides({OPT_o, OPT_json, OPT_progress, OPT_calibrate});
  return request;
}

} // namespace attn::tools
