#ifndef TEST_COMPILER_WEIGHTS_H
#define TEST_COMPILER_WEIGHTS_H

#include "compiler/package/WeightPlan.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <cstring>

namespace attn {

/// Expressions of weights, and what they are made to.
struct Weights : testing::Test {
  Weights() { context.loadDialect<AttnDialect>(); }

  mlir::OwningOpRef<mlir::ModuleOp> parse(llvm::StringRef text) {
    return mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  /// Elements first, first+1, ... as f32.
  void addFloats(llvm::StringRef name, int64_t count, float first = 0) {
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = first + i;
    store.addCopy(name, llvm::ArrayRef<char>(reinterpret_cast<char *>(values.data()), count * sizeof(float)));
  }

  /// The evaluated weights as floats, gaps included.
  std::vector<float> write(mlir::ModuleOp module, const WeightPlan &plan) {
    std::vector<char> bytes;
    EXPECT_TRUE(mlir::succeeded(plan.write(module, store, [&](llvm::ArrayRef<char> part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
      return true;
    })));
    EXPECT_EQ(bytes.size(), plan.totalBytes());
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }

  std::vector<float> evaluate(llvm::StringRef text, llvm::StringRef symbol) {
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
    EXPECT_TRUE(module);
    mlir::FailureOr<WeightPlan> plan = WeightPlan::create(*module, {symbol}, store);
    EXPECT_TRUE(mlir::succeeded(plan));
    return mlir::succeeded(plan) ? write(*module, *plan) : std::vector<float>();
  }

  std::string errorOf(llvm::StringRef text, llvm::StringRef symbol) {
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) { message += d.str(); });
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
    if (module && mlir::succeeded(WeightPlan::create(*module, {symbol}, store)))
      return "accepted";
    return message;
  }

  /// The bytes of @p, where @w has these.
  std::vector<char> evaluateBytes(const std::string &text, std::vector<int8_t> w) {
    store.addCopy("w", llvm::ArrayRef<char>(reinterpret_cast<char *>(w.data()), w.size()));
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(text.c_str());
    std::vector<char> result;
    mlir::FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"p"}, store);
    EXPECT_TRUE(succeeded(plan));
    EXPECT_TRUE(succeeded(plan->write(*module, store, [&](llvm::ArrayRef<char> part) {
      result.insert(result.end(), part.begin(), part.end());
      return true;
    })));
    return result;
  }

  mlir::MLIRContext context;
  WeightStore store;
};

} // namespace attn

#endif // TEST_COMPILER_WEIGHTS_H
