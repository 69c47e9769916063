#include "frontends/search/BuildSearch.h"
#include "dialects/attn/DimBounds.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/Beginning.h"
#include "frontends/search/DecoderInputs.h"
#include "frontends/search/LearnedPositions.h"
#include "frontends/search/SearchSeed.h"
#include "frontends/search/SearchSettings.h"
#include "frontends/search/SearchTensors.h"
#include "frontends/search/StepRoles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

namespace {
class SearchBuilder {
public:
  SearchBuilder(ModuleOp module, const SearchOptions &options)
      : module(module), options(options), b(module.getContext()), loc(module.getLoc()) {}

  LogicalResult run() {
    step = findEntry(module, options.step);
    if (!step)
      return module.emitError() << "has no entry '" << options.step
                                << "' for --generate to search around: name it with "
                                << "--step= (" << listEntries(module) << ")";
    for (const std::string &name : options.init) {
      init.push_back(findEntry(module, name));
      if (!init.back())
        return module.emitError() << "has no entry '" << name << "' for --init to start a search from ("
                                  << listEntries(module) << ")";
    }
    if (findEntry(module, options.entry))
      return module.emitError() << "has an entry '" << options.entry << "' already";
    loc = step.getLoc();
    bool isWhole = options.prompts && !hasPast(step) && options.states.empty();
    func::FuncOp given = step;
    if (isWhole && !(step = makeStepOfWhole(module, step, "logits")))
      return failure();
    if (isWhole && options.hidesParts)
      given.erase();
    FailureOr<StepRoles> found = findRoles(step, options);
    if (failed(found) || failed(checkEnds(*found)))
      return failure();
    roles = *found;
    reportRoles();
    nameLearnedPositions(parts(), options);
    for (func::FuncOp each : parts())
      for (unsigned n = 0; n < each.getNumArguments(); ++n)
        for (StringRef dim : dimsOfInput(each, n))
          takenDims.insert(dim);
    b.setInsertionPointToEnd(module.getBody());
    entry = func::FuncOp::create(b, loc, "entry." + options.entry, b.getFunctionType({}, {}));
    entry->setAttr(AttnDialect::kEntryAttr, b.getStringAttr(options.entry));
    b.setInsertionPointToStart(entry.addEntryBlock());
    auto addInput = [this](Type type, DictionaryAttr attrs) { return this->addInput(type, attrs); };
    beginning.emplace(step, nameOfOutput(step, roles.logits), options, b, addInput);
    seed.emplace(b, loc, parts(), options.seed, addInput);
    if (failed(beginning->call(init, isWhole, *seed)) || failed(takeArguments()) || failed(takeFirst()) ||
        failed(takeLength()))
      return failure();
    settings = makeSettings(b, loc, options, *beginning, addInput, vocabulary(), seed->number(), length);
    if (failed(checkNames(step, parts(), inputAttrs)) || failed(finish()) || failed(beginning->checkUses()))
      return failure();
    for (func::FuncOp each : parts())
      if (options.hidesParts || llvm::is_contained(options.hidden, nameOfEntry(each)))
        hide(each);
    return success();
  }

private:
  SmallVector<func::FuncOp> parts() {
    SmallVector<func::FuncOp> result(init);
    result.push_back(step);
    return result;
  }

  /// What only the search uses.
  static void hide(func::FuncOp part) {
    part->removeAttr(AttnDialect::kEntryAttr);
    part.setPrivate();
  }

  InFlightDiagnostic error() { return entry.emitError() << "the search around '" << options.step << "' "; }

  /// Says what names were taken for: a wrong guess shows before the first run.
  void reportRoles() {
    constexpr int64_t kShown = 3;
    SmallVector<std::string> states;
    int64_t count = 0;
    for (auto [n, source] : llvm::enumerate(roles.sources))
      if (source >= 0 && count++ < kShown)
        states.push_back("'" + printableName(nameOfInput(step, n)) + "' from '" +
                         printableName(nameOfOutput(step, source)) + "'");
    auto note = [&](DiagnosticSeverity severity) {
      Diagnostic diagnostic(loc, severity);
      diagnostic << "the search around '" << options.step << "' ";
      return diagnostic;
    };
    Diagnostic taken = note(DiagnosticSeverity::Note);
    taken << "gives tokens to '" << printableName(nameOfInput(step, roles.tokens)) << "' and reads scores from '"
          << printableName(nameOfOutput(step, roles.logits)) << "'";
    if (count)
      taken << "; " << count << (count == 1 ? " state: " : " states: ") << llvm::join(states, ", ");
    if (count > kShown)
      taken << ", ...";
    module.getContext()->getDiagEngine().emit(std::move(taken));
    if (count)
      return;
    Diagnostic alone = note(DiagnosticSeverity::Warning);
    alone << "hands no state on: each token is chosen from the one before it alone (--state=INPUT:OUTPUT pairs what "
             "a step takes with what the one before made)";
    module.getContext()->getDiagEngine().emit(std::move(alone));
  }

  LogicalResult checkEnds(const StepRoles &found) {
    int64_t vocabulary = cast<RankedTensorType>(step.getResultTypes()[found.logits]).getShape().back();
    for (int64_t token : options.eos)
      if (token < 0 || (!ShapedType::isDynamic(vocabulary) && token >= vocabulary))
        return step.emitError() << "the end token " << token << " is outside the vocabulary of " << vocabulary
                                << " tokens of the step '" << options.step << "'";
    for (auto [token, name] :
         {std::pair(options.forcedBos, "forced_bos_token_id"), {options.forcedEos, "forced_eos_token_id"}})
      if (!ShapedType::isDynamic(vocabulary) && token >= vocabulary)
        return step.emitError() << "the token " << token << " of " << name << " is outside the vocabulary of "
                                << vocabulary << " tokens of the step '" << options.step << "'";
    // The step may know more tokens than it scores, as one that only begins.
    if (int64_t token;
        !StringRef(options.bos).getAsInteger(10, token) && !ShapedType::isDynamic(vocabulary) && token >= vocabulary)
      step.emitWarning() << "the first token " << token << " is outside the vocabulary of " << vocabulary
                         << " tokens that the step '" << options.step
                         << "' scores: a run fails unless the step takes it";
    if (options.width > 1)
      for (auto [n, dim] : llvm::enumerate(found.rowDims))
        if (auto type = cast<RankedTensorType>(step.getArgumentTypes()[n]); dim >= 0 && !type.isDynamicDim(dim)) {
          options.blameStep();
          return step.emitError() << "input '" << printableName(nameOfInput(step, n)) << "' of the step '"
                                  << options.step << "' has " << type.getDimSize(dim)
                                  << " rows, and a beam needs as many as it is wide: leave its batch open (--dim fixes "
                                     "it; a run takes it from the inputs)";
        }
    return success();
  }

  /// One more input of the entry, with these attributes.
  Value addInput(Type type, DictionaryAttr attrs) {
    inputAttrs.push_back(attrs ? attrs : b.getDictionaryAttr({}));
    return entry.getBody().front().addArgument(type, loc);
  }
  DictionaryAttr describe(StringRef name, StringRef dtype, ArrayRef<StringRef> dims) {
    return b.getDictionaryAttr({b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
                                b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtype)),
                                b.getNamedAttr(AttnDialect::kDimsAttr, b.getStrArrayAttr(dims))});
  }
  std::string freshDim(std::string name) {
    while (takenDims.contains(name))
      name += "'";
    takenDims.insert(name);
    return name;
  }

  /// The output of an entry before that is the input `number` of the first step.
  Value initOutput(unsigned number) {
    int64_t state = roles.sources[number];
    return beginning->output(step, nameOfInput(step, number), state >= 0 ? nameOfOutput(step, state) : StringRef());
  }

  /// Positions of the first step behind what `init` was given: the number of ones of its mask, or its length.
  Value firstPositions(unsigned number) {
    Value prompt = beginning->input(nameOfInput(step, roles.tokens)), mask = beginning->input("attention_mask");
    auto want = cast<RankedTensorType>(step.getArgumentTypes()[number]);
    auto promptType = prompt ? dyn_cast<RankedTensorType>(prompt.getType()) : nullptr;
    if (!promptType || promptType.getRank() != 2 || want.getRank() > 2)
      return {};
    auto maskType = mask ? cast<RankedTensorType>(mask.getType()) : nullptr;
    bool counts = maskType && maskType.getRank() == 2 && maskType.getElementType() == want.getElementType() &&
                  roles.rowDims[number] == 0;
    SmallVector<OpFoldResult> sizes;
    for (int64_t dim = 0; dim < want.getRank(); ++dim)
      sizes.push_back(dim == roles.rowDims[number] ? tensor::getMixedSize(b, loc, prompt, 0)
                                                   : OpFoldResult(b.getIndexAttr(1)));
    Value length = arith::IndexCastOp::create(b, loc, want.getElementType(), sizeOf(b, loc, prompt, 1));
    if (!counts) {
      Value empty = tensor::EmptyOp::create(b, loc, sizes, want.getElementType());
      return linalg::FillOp::create(b, loc, length, empty).getResult(0);
    }
    Value sums = countOnes(b, loc, mask, sizes[0]);
    if (want.getRank() == 1)
      return sums;
    auto type = RankedTensorType::get({cast<RankedTensorType>(sums.getType()).getDimSize(0), 1}, want.getElementType());
    SmallVector<ReassociationIndices> groups{{0, 1}};
    return tensor::ExpandShapeOp::create(b, loc, type, sums, groups, sizes);
  }

  LogicalResult takeArguments() {
    for (unsigned n = 0; n < step.getNumArguments(); ++n) {
      int64_t source = roles.sources[n];
      if (source == SearchOp::kToken)
        continue;
      Value given = isSeed(step, n) ? seed->ofSteps() : beginning->made(n);
      if (!given)
        given = initOutput(n);
      if (!given && source == SearchOp::kPosition)
        given = firstPositions(n);
      if (!given)
        if (Value shared = beginning->input(nameOfInput(step, n)))
          given = source == SearchOp::kMask ? extendMask(b, loc, shared) : shared;
      if (!given)
        given = addInput(step.getArgumentTypes()[n], step.getArgAttrDict(n));
      FailureOr<Value> fitted = beginning->fit(given, step.getArgumentTypes()[n], nameOfInput(step, n));
      if (failed(fitted))
        return failure();
      inits.push_back(*fitted);
      if (!batch && roles.rowDims[n] >= 0)
        batch = sizeOf(b, loc, *fitted, roles.rowDims[n]);
    }
    return success();
  }

  std::string batchName() {
    SmallVector<StringRef> dims = dimsOfInput(step, roles.tokens);
    return dims.empty() ? "" : dims[0].str();
  }

  LogicalResult takeFirst() {
    if ((first = beginning->first()))
      return success();
    if (options.bos == "input") {
      int64_t count = cast<RankedTensorType>(step.getArgumentTypes()[roles.tokens]).getDimSize(0);
      std::string name = batchName();
      first = addInput(RankedTensorType::get({count}, b.getI64Type()), describe("bos", "int64", StringRef(name)));
      return success();
    }
    int64_t token = 0;
    if (options.bos.empty())
      return error() << "needs a first token: --bos=ID, or --bos=input";
    if (StringRef(options.bos).getAsInteger(10, token) || token < 0)
      return error() << "cannot begin with the token '" << options.bos << "'";
    if (!batch)
      return error() << "cannot tell how many rows there are from the inputs of the step: --bos=input tells";
    first = filled(b, loc, {OpFoldResult(batch)}, b.getI64IntegerAttr(token));
    return success();
  }

  /// How many tokens are scored; null where nothing before the loop tells.
  Value vocabulary() {
    int64_t known = cast<RankedTensorType>(step.getResultTypes()[roles.logits]).getShape().back();
    if (!ShapedType::isDynamic(known))
      return arith::ConstantIndexOp::create(b, loc, known);
    return cast<RankedTensorType>(first.getType()).getRank() == 2 ? sizeOf(b, loc, first, 1) : Value();
  }

  LogicalResult takeLength() {
    StringRef text = options.maxLength;
    if (text == "input") {
      Value given = addInput(RankedTensorType::get({}, b.getI64Type()), describe("max_length", "int64", {}));
      Value number = tensor::ExtractOp::create(b, loc, given, ValueRange());
      length = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
      Value some =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, length, arith::ConstantIndexOp::create(b, loc, 1));
      RequireOp::create(b, loc, some, "search: input 'max_length' is {0}, which is less than 1", length);
      return success();
    }
    int64_t fixed = 0;
    if (!text.consume_front("dim:")) {
      if (text.getAsInteger(10, fixed) || fixed < 1)
        return error() << "cannot have the greatest length '" << text << "'";
      if (fixed > options.fuel)
        return error() << "cannot have the greatest length " << fixed << ", the limit of iterations is " << options.fuel
                       << " (--max-loop-iterations)";
      if (fixed < options.minLength)
        return error() << "cannot have a least length of " << options.minLength << " and a greatest of " << fixed;
      length = arith::ConstantIndexOp::create(b, loc, fixed);
      if (Value prompt = beginning->promptLength(); prompt && options.countsPrompt)
        length = arith::SubIOp::create(b, loc, length, prompt);
      return success();
    }
    auto [name, more] = text.rsplit('+');
    if (!text.contains('+') || more.getAsInteger(10, fixed))
      name = text;
    for (auto [argument, attrs] : llvm::zip(entry.getBody().front().getArguments(), inputAttrs)) {
      auto dims = attrs.getAs<ArrayAttr>(AttnDialect::kDimsAttr);
      for (auto [n, dim] : llvm::enumerate(dims ? dims.getValue() : ArrayRef<Attribute>()))
        if (cast<StringAttr>(dim).getValue() == name) {
          Value size = sizeOf(b, loc, argument, n);
          length = arith::AddIOp::create(b, loc, size, arith::ConstantIndexOp::create(b, loc, fixed));
          return success();
        }
    }
    return error() << "has no input with a dimension '" << printableName(name) << "', of which --max-length is made";
  }

  /// What bounds a dimension of the step or of `init` bounds that of an input here.
  void keepBounds() {
    NamedAttrList kept;
    for (func::FuncOp each : parts())
      if (auto bounds = each->getAttrOfType<DictionaryAttr>(kDimBoundsAttr))
        for (NamedAttribute bound : bounds)
          if (!kept.get(bound.getName()) && requireBound(bound))
            kept.append(bound);
    if (!kept.empty())
      entry->setAttr(kDimBoundsAttr, kept.getDictionary(b.getContext()));
  }

  bool requireBound(NamedAttribute bound) {
    auto range = dyn_cast<DenseI64ArrayAttr>(bound.getValue());
    for (auto [argument, attrs] : llvm::zip(entry.getBody().front().getArguments(), inputAttrs)) {
      auto dims = attrs.getAs<ArrayAttr>(AttnDialect::kDimsAttr);
      auto at = dims ? llvm::find(dims, bound.getName()) : nullptr;
      if (!dims || at == dims.end() || !range || range.size() != 2)
        continue;
      Value size = sizeOf(b, loc, argument, at - dims.begin());
      auto holds = [&](arith::CmpIPredicate predicate, int64_t limit) -> Value {
        return arith::CmpIOp::create(b, loc, predicate, size, arith::ConstantIndexOp::create(b, loc, limit));
      };
      Value inside = arith::AndIOp::create(b, loc, holds(arith::CmpIPredicate::sge, range[0]),
                                           holds(arith::CmpIPredicate::sle, range[1]));
      std::string message = "dimension '" + printableName(bound.getName().str()) +
                            "' has size {0}, and the library was compiled for " + std::to_string(range[0]) + " to " +
                            std::to_string(range[1]);
      RequireOp::create(b, loc, inside, message, size);
      return true;
    }
    return false;
  }

  LogicalResult finish() {
    bool isBeam = options.kind == "beam";
    int64_t best = isBeam ? options.nBest : 1;
    SmallVector<int64_t> items{kDynamic};
    if (isBeam)
      items.push_back(best);
    SmallVector<int64_t> each = items, weights;
    each.push_back(kDynamic);
    weights = each;
    weights.push_back(kDynamic);
    Type i64 = b.getI64Type(), f32 = b.getF32Type();
    SmallVector<Type> types{RankedTensorType::get(each, i64), RankedTensorType::get(items, i64),
                            RankedTensorType::get(items, f32)};
    bool hasAlignment = roles.alignment >= 0;
    if (hasAlignment)
      types.push_back(RankedTensorType::get(weights, f32));
    NamedAttrList attrs;
    attrs.set("kind", b.getStringAttr(options.kind));
    attrs.set("step", FlatSymbolRefAttr::get(step.getSymNameAttr()));
    attrs.set("sources", b.getDenseI64ArrayAttr(roles.sources));
    attrs.set("batch_dims", b.getDenseI64ArrayAttr(roles.rowDims));
    attrs.set("grow_dims", b.getDenseI64ArrayAttr(roles.growDims));
    attrs.set("logits_result", b.getI64IntegerAttr(roles.logits));
    if (hasAlignment)
      attrs.set("alignment_result", b.getI64IntegerAttr(roles.alignment));
    attrs.set("width", b.getI64IntegerAttr(options.width));
    attrs.set("n_best", b.getI64IntegerAttr(best));
    attrs.set("eos", b.getDenseI64ArrayAttr(options.eos));
    if (options.pad)
      attrs.set("pad", b.getI64IntegerAttr(*options.pad));
    attrs.set("min_length", b.getI64IntegerAttr(options.minLength));
    attrs.set("length_penalty", b.getF64FloatAttr(options.lengthPenalty));
    attrs.set("coverage_penalty", b.getF64FloatAttr(options.coveragePenalty));
    for (auto [name, set] :
         {std::pair("gnmt", options.gnmt), {"shrink", options.shrink}, {"early_stop", options.earlyStop}})
      if (set)
        attrs.set(name, b.getUnitAttr());
    attrs.set("temperature", b.getF64FloatAttr(options.temperature));
    attrs.set("top_k", b.getI64IntegerAttr(options.topK));
    attrs.set("top_p", b.getF64FloatAttr(options.topP));
    attrs.set("seed", b.getI64IntegerAttr(options.seed));
    attrs.set("fuel", b.getI64IntegerAttr(options.fuel));
    keepBounds();
    SmallVector<Value> operands{first, length};
    llvm::append_range(operands, inits);
    SmallVector<StringRef> given;
    for (const Setting &setting : settings) {
      given.push_back(setting.name);
      operands.push_back(setting.value);
    }
    attrs.set("given", b.getStrArrayAttr(given));
    attrs.set("operandSegmentSizes",
              b.getDenseI32ArrayAttr({1, 1, static_cast<int>(inits.size()), static_cast<int>(given.size())}));
    auto search = SearchOp::create(b, loc, types, operands, attrs);
    SmallVector<Value> returned(search.getResults());
    if (hasAlignment && options.alignmentArgmax) {
      returned.back() = mostAligned(b, loc, returned.back());
      types.back() = returned.back().getType();
    }
    func::ReturnOp::create(b, loc, returned);
    moveSeedBehind();
    entry.setFunctionType(b.getFunctionType(entry.getBody().front().getArgumentTypes(), types));
    entry.setArgAttrsAttr(b.getArrayAttr(SmallVector<Attribute>(inputAttrs.begin(), inputAttrs.end())));
    entry.setResAttrsAttr(b.getArrayAttr(describeResults(isBeam, hasAlignment)));
    return success();
  }

  /// The seed comes after what a caller has to give.
  void moveSeedBehind() {
    auto before = dyn_cast_or_null<BlockArgument>(seed->input());
    if (!before)
      return;
    unsigned number = before.getArgNumber();
    before.replaceAllUsesWith(addInput(before.getType(), inputAttrs[number]));
    entry.getBody().front().eraseArgument(number);
    inputAttrs.erase(inputAttrs.begin() + number);
  }

  /// What the entry calls the positions of the alignment: a dimension of an input that is the step's own, or of
  /// one of `init`'s outputs, which has an input of that name. "" where neither is.
  std::string sourceName() {
    StringRef name = dimsOfOutput(step, roles.alignment).back();
    for (unsigned n = 0; n < step.getNumArguments() && !name.empty(); ++n) {
      if (roles.sources[n] != SearchOp::kConstant)
        continue;
      for (auto [d, dim] : llvm::enumerate(dimsOfInput(step, n))) {
        if (dim != name)
          continue;
        Value made = initOutput(n);
        StringRef outer = made ? beginning->dimsOf(made)[d] : name;
        for (DictionaryAttr attrs : inputAttrs)
          if (auto dims = attrs.getAs<ArrayAttr>(AttnDialect::kDimsAttr); dims && !outer.empty())
            if (llvm::is_contained(dims.getAsRange<StringAttr>(), b.getStringAttr(outer)))
              return outer.str();
      }
    }
    return "";
  }

  SmallVector<Attribute> describeResults(bool isBeam, bool hasAlignment) {
    std::string rows = batchName(), time = freshDim("generated_length");
    SmallVector<StringRef> items{rows};
    if (isBeam)
      items.push_back("");
    SmallVector<StringRef> each = items;
    each.push_back(time);
    SmallVector<Attribute> result{describe("tokens", "int64", each), describe("lengths", "int64", items),
                                  describe("scores", "float32", items)};
    if (hasAlignment && options.alignmentArgmax) {
      result.push_back(describe("alignment", "int64", each));
    } else if (hasAlignment) {
      std::string source = sourceName();
      each.push_back(source);
      result.push_back(describe("alignment", "float32", each));
    }
    return result;
  }

  ModuleOp module;
  const SearchOptions &options;
  OpBuilder b;
  Location loc;
  func::FuncOp step, entry;
  SmallVector<func::FuncOp> init;
  std::optional<Beginning> beginning;
  std::optional<SearchSeed> seed;
  StepRoles roles;
  SmallVector<DictionaryAttr> inputAttrs;
  llvm::StringSet<> takenDims;
  SmallVector<Value> inits;
  SmallVector<Setting> settings;
  Value batch, first, length;
};
} // namespace

LogicalResult attn::buildSearch(ModuleOp module, const SearchOptions &options) {
  module->getContext()
      ->loadDialect<AttnDialect, arith::ArithDialect, linalg::LinalgDialect, scf::SCFDialect, tensor::TensorDialect>();
  SearchOptions named = options;
  if (named.step.empty()) {
    SmallVector<StringRef> entries;
    for (auto function : module.getOps<func::FuncOp>())
      if (Attribute entry = function->getAttr(AttnDialect::kEntryAttr))
        entries.push_back(isa<StringAttr>(entry) ? cast<StringAttr>(entry).getValue() : function.getSymName());
    named.step = entries.size() == 1 ? entries.front().str() : "step";
  }
  return named.isCtc() ? buildCtcSearch(module, named) : SearchBuilder(module, named).run();
}
