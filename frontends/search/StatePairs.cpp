#include "frontends/search/StatePairs.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/StepRoles.h"

using namespace mlir;
using namespace attn;

static std::string describeNames(StringRef input, StringRef output) {
  return "input '" + printableName(input) + "' and output '" + printableName(output) + "'";
}

std::string StatePair::describe() const {
  auto [from, to] = StringRef(text).split(':');
  if (!text.empty() && to.contains(':'))
    return "an input and an output '" + printableName(text) + "'";
  return text.empty() ? describeNames(input, output) : describeNames(from, to);
}

std::string attn::describePairable(func::FuncOp entry) {
  return "'" + printableName(entry.getName()) + "' has inputs " + listNames(entry, /*ofInputs=*/true) +
         " and outputs " + listNames(entry, /*ofInputs=*/false);
}

static int64_t find(func::FuncOp entry, StringRef name, int64_t count, StringRef (*nameOf)(func::FuncOp, unsigned)) {
  for (int64_t n = 0; n < count; ++n)
    if (nameOf(entry, n) == name)
      return n;
  return -1;
}

FailureOr<std::optional<std::pair<int64_t, int64_t>>> attn::findStatePair(func::FuncOp entry, const StatePair &pair) {
  std::optional<std::pair<int64_t, int64_t>> found;
  auto read = [&](StringRef from, StringRef to) -> LogicalResult {
    int64_t input = find(entry, from, entry.getNumArguments(), nameOfInput),
            output = find(entry, to, entry.getNumResults(), nameOfOutput);
    if (input < 0 || output < 0)
      return success();
    if (found)
      return entry.emitError() << "--state pairs '" << printableName(pair.text) << "', which is "
                               << describeNames(nameOfInput(entry, found->first), nameOfOutput(entry, found->second))
                               << ", or " << describeNames(from, to);
    found = {input, output};
    return success();
  };
  if (pair.text.empty()) {
    if (failed(read(pair.input, pair.output)))
      return failure();
    return found;
  }
  StringRef text = pair.text;
  for (size_t colon = text.find(':'); colon != StringRef::npos; colon = text.find(':', colon + 1))
    if (failed(read(text.take_front(colon), text.drop_front(colon + 1))))
      return failure();
  return found;
}
