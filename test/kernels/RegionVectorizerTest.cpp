#include "passes/kernels/cpu/RegionVectorizer.h"

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace {

class RegionVectorizerTest : public testing::Test {
protected:
  RegionVectorizerTest() {
    context.loadDialect<attn::AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect,
                        math::MathDialect, tensor::TensorDialect, vector::VectorDialect>();
  }

  /// A module with a linalg.generic on f32 and one more input of type `capture`.
  Block &parse(StringRef body, StringRef capture = "i8", StringRef before = "") {
    std::string text = R"(#i = affine_map<(i) -> (i)>
      func.func @f(%a: tensor<?xf32>, %b: tensor<?x)" +
                       capture.str() + R"(>, %t: tensor<4xf32>, %c: index) -> tensor<?xf32> {
        )" + before.str() +
                       R"(
        %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
            ins(%a, %b : tensor<?xf32>, tensor<?x)" +
                       capture.str() + R"(>) outs(%a : tensor<?xf32>) {
          ^bb0(%x: f32, %m: )" +
                       capture.str() + R"(, %o: f32):
            )" + body.str() +
                       R"(
          } -> tensor<?xf32>
        return %r : tensor<?xf32>
      })";
    module = parseSourceString<ModuleOp>(text, &context);
    Block *block = nullptr;
    module->walk([&](linalg::GenericOp generic) { block = generic.getBody(); });
    return *block;
  }

  /// Vectorizes for 16 lanes into a function of (vector, capture, vector) and
  /// returns the function's text, or the reason.
  std::string vectorize(Block &block, bool isCaptureShared, attn::IndexVectorFn indexVector = nullptr) {
    if (std::string reason; !attn::canVectorizeBlock(block, &reason))
      return reason;
    OpBuilder builder(&context);
    Location loc = builder.getUnknownLoc();
    SmallVector<Type> types;
    for (auto [n, type] : llvm::enumerate(block.getArgumentTypes()))
      types.push_back(n == 1 && isCaptureShared ? type : VectorType::get({16}, type));
    OwningOpRef<ModuleOp> into = ModuleOp::create(loc);
    builder.setInsertionPointToEnd(into->getBody());
    auto result = VectorType::get({16}, builder.getF32Type());
    auto function = func::FuncOp::create(builder, loc, "g", builder.getFunctionType(types, {result}));
    builder.setInsertionPointToStart(function.addEntryBlock());
    Value value = attn::vectorizeBlock(builder, block, function.getArguments(), 16, indexVector);
    func::ReturnOp::create(builder, loc, value);
    EXPECT_TRUE(succeeded(verify(*into)));
    std::string text;
    llvm::raw_string_ostream(text) << *into;
    return text;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

constexpr char kSelect[] = R"(%z = arith.constant 0 : i8
    %low = arith.constant -1.0e4 : f32
    %k = arith.cmpi ne, %m, %z : i8
    %e = math.exp %x fastmath<contract> : f32
    %y = arith.select %k, %e, %low : f32
    linalg.yield %y : f32)";

TEST_F(RegionVectorizerTest, SelectsByABooleanVector) {
  std::string text = vectorize(parse(kSelect), false);
  EXPECT_NE(text.find("arith.cmpi ne, %arg1, %cst"), std::string::npos) << text;
  EXPECT_NE(text.find("math.exp %arg0 fastmath<contract> : vector<16xf32>"), std::string::npos) << text;
  EXPECT_NE(text.find("vector<16xi1>, vector<16xf32>"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, KeepsSharedScalarsScalar) {
  std::string text = vectorize(parse(kSelect), true);
  EXPECT_NE(text.find("arith.cmpi ne, %arg1, %c0_i8 : i8"), std::string::npos) << text;
  EXPECT_NE(text.find("vector.broadcast"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, ConvertsBetweenWidths) {
  std::string text = vectorize(parse(R"(%h = arith.truncf %x : f32 to f16
    %w = arith.extf %h : f16 to f32
    %u = arith.extui %m : i8 to i32
    %f = arith.sitofp %u : i32 to f32
    %y = arith.addf %w, %f : f32
    linalg.yield %y : f32)"),
                               false);
  EXPECT_NE(text.find("arith.truncf %arg0 : vector<16xf32> to vector<16xf16>"), std::string::npos) << text;
  EXPECT_NE(text.find("arith.extui %arg1 : vector<16xi8> to vector<16xi32>"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, BringsInConstantsFromOutside) {
  std::string text = vectorize(
      parse("%y = arith.mulf %x, %two : f32\nlinalg.yield %y : f32", "i8", "%two = arith.constant 2.0 : f32"), true);
  EXPECT_NE(text.find("dense<2.000000e+00> : vector<16xf32>"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, BroadcastsAYieldedScalar) {
  std::string text = vectorize(parse("linalg.yield %m : f32", "f32"), true);
  EXPECT_NE(text.find("vector.broadcast %arg1 : f32 to vector<16xf32>"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, AsksForIndices) {
  Block &block = parse(R"(%i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    linalg.yield %f : f32)");
  std::string text = vectorize(block, true, [](OpBuilder &builder, Location loc, int64_t dim) -> Value {
    EXPECT_EQ(dim, 0);
    return vector::StepOp::create(builder, loc, VectorType::get({16}, builder.getIndexType()));
  });
  EXPECT_NE(text.find("arith.index_cast %0 : vector<16xindex> to vector<16xi32>"), std::string::npos) << text;
}

TEST_F(RegionVectorizerTest, SaysWhatItRefuses) {
  EXPECT_EQ(vectorize(parse("%y = tensor.extract %t[%c] : tensor<4xf32>\nlinalg.yield %y : f32"), true),
            "'tensor.extract' does not map over the elements of a vector");
  EXPECT_EQ(vectorize(parse("%y = arith.addf %x, %s : f32\nlinalg.yield %y : f32", "i8",
                            "%c0 = arith.constant 0 : index\n%s = tensor.extract %t[%c0] : tensor<4xf32>"),
                      true),
            "'arith.addf' uses a value from outside that is no constant");
}

TEST_F(RegionVectorizerTest, SignatureIsThatOfTheComputation) {
  std::string here = attn::blockSignature(parse("%two = arith.constant 2.0 : f32\n"
                                                "%y = arith.mulf %x, %two : f32\nlinalg.yield %y : f32"));
  std::string outside = attn::blockSignature(
      parse("%y = arith.mulf %x, %two : f32\nlinalg.yield %y : f32", "i8", "%two = arith.constant 2.0 : f32"));
  std::string renamed = attn::blockSignature(
      parse("%q = arith.mulf %x, %d : f32\nlinalg.yield %q : f32", "i8", "%d = arith.constant 2.0 : f32"));
  std::string three = attn::blockSignature(
      parse("%y = arith.mulf %x, %two : f32\nlinalg.yield %y : f32", "i8", "%two = arith.constant 3.0 : f32"));
  EXPECT_EQ(outside, renamed);
  EXPECT_NE(outside, three);
  EXPECT_NE(outside, here);
}

} // namespace
