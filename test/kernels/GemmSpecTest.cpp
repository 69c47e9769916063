// Names of GEMM kernels, and what has none.
#include "passes/kernels/cpu/Gemm.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

TEST(GemmSpecTest, EqualNamesMeanEqualKernels) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  TargetAttr target = makeTarget(context, "avx512");
  GemmSpec spec = GemmSpec::forTarget(target, ShapedType::kDynamic, 384, 1536);
  EXPECT_EQ(spec.symbol(), "gemm_f32_mx_k384_n1536_fma_8x3x16_c58");
  EXPECT_EQ(spec.numPanels(), 32);
  GemmSpec narrow = spec;
  for (int64_t group : {0, 384, 64}) {
    narrow.storage = group ? PanelStorage::I8 : PanelStorage::BF16;
    narrow.group = group;
    EXPECT_EQ(narrow.symbol(), "gemm_f32_mx_k384_n1536_fma_8x3x16_" +
                                   (group ? "i8g" + std::to_string(group) : std::string("bf16")) + "_c58");
  }
  // Rows share panels that are widened where there may be more than a tile has.
  for (auto [storage, m, name] : std::initializer_list<std::tuple<PanelStorage, int64_t, std::string>>{
           {PanelStorage::F16, ShapedType::kDynamic, "mx_k384_n1536_fma_8x3x16_f16_shared"},
           {PanelStorage::BF16, 9, "m9_k384_n1536_fma_8x3x16_bf16_shared"},
           {PanelStorage::F16, 8, "m8_k384_n1536_fma_8x3x16_f16"},
           {PanelStorage::F32, 9, "m9_k384_n1536_fma_8x3x16"}}) {
    GemmSpec shared = GemmSpec::forTarget(target, m, 384, 1536);
    shared.storage = storage;
    shared.sharePanels();
    EXPECT_EQ(shared.symbol(), "gemm_f32_" + name);
  }
  GemmSpec fixed = GemmSpec::forTarget(target, 128, 384, 1536);
  EXPECT_EQ(fixed.symbol(), "gemm_f32_m128_k384_n1536_fma_8x3x16") << "one chunk has all rows";
}

TEST(GemmSpecTest, SaysWhatItRefuses) {
  MLIRContext context;
  context.loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect>();
  TargetAttr target = makeTarget(context, "avx2");
  std::string reason;
  EXPECT_FALSE(canBuildGemm(GemmSpec::forTarget(target, 1, 0, 5), &reason));
  EXPECT_EQ(reason, "the sizes M, K, N (1, 0, 5) are not positive");
  GemmSpec spec = GemmSpec::forTarget(target, 1, 3, 5);
  spec.operands = {EpilogueOperand::Full};
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "there are operands but no epilogue");
  spec = GemmSpec::forTarget(target, 1, ShapedType::kDynamic, 5);
  spec.storage = PanelStorage::BF16;
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "narrow panels have fixed sizes and are no batch");
  spec = GemmSpec::forTarget(target, 1, 3, 5);
  spec.storage = PanelStorage::I8;
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "a group of 0 rows is empty");
  spec = GemmSpec::forTarget(target, 1, 4, 5);
  spec.parts = 2;
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "factors in 2 parts, which only those in bf16 have, and up to 3");
  spec = GemmSpec::forTarget(target, 1, 4, 5);
  spec.panelDepth = 32;
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "panels that are not bf16 cannot be padded to 32 rows");
  spec.storage = PanelStorage::BF16;
  spec.hasTiles = true;
  EXPECT_FALSE(canBuildGemm(spec, &reason));
  EXPECT_EQ(reason, "tiles need factors in bf16 and panels of 32 columns, padded to 32 rows");
  EXPECT_FALSE(GemmSpec::mayHaveTiles(makeTarget(context, "avx512bf16")));
  EXPECT_TRUE(GemmSpec::mayHaveTiles(makeTarget(context, "amx")));
  EXPECT_EQ(WeightStorage::parse("int8:64")->group, 64);
  EXPECT_EQ(WeightStorage::parse("int8:64")->block, 0);
  EXPECT_EQ(WeightStorage::parse("int4:32")->block, 32);
  EXPECT_EQ(WeightStorage::parse("int4:32")->storage, PanelStorage::F32);
  for (const char *text :
       {"int4:24", "int4:512", "int4:-32", "int4:32x", "int8:0", "int8:-1", "int8:", "int4", "", "int8:1x", "bf16:4"})
    EXPECT_FALSE(WeightStorage::parse(text)) << text;
  auto refused = [&](StringRef type, StringRef body) {
    std::string text = ("func.func @f(%t: tensor<4x" + type +
                        ">) { %g = linalg.generic {indexing_maps = "
                        "[affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = [\"parallel\"]} "
                        "ins(%t : tensor<4x" +
                        type + ">) outs(%t : tensor<4x" + type + ">) { ^bb0(%x: " + type + ", %o: " + type + "):\n" +
                        body + " } -> tensor<4x" + type + ">\n return }")
                           .str();
    auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context));
    GemmSpec spec = GemmSpec::forTarget(target, 1, 3, 5);
    module->walk([&](linalg::GenericOp generic) { spec.epilogue = generic.getBody(); });
    return canBuildGemm(spec, &reason) ? "built" : reason;
  };
  EXPECT_EQ(refused("f32", "linalg.yield %x : f32"), "built");
  EXPECT_EQ(refused("f64", "linalg.yield %x : f64"), "an argument of the epilogue is not f32");
  EXPECT_EQ(refused("f32", "%y = arith.addf %x, %o : f32\n linalg.yield %y : f32"),
            "the epilogue uses its argument number 1");
  EXPECT_EQ(refused("f32", "%i = linalg.index 0 : index\n %n = arith.index_cast %i : index to i32\n"
                           "%y = arith.sitofp %n : i32 to f32\n linalg.yield %y : f32"),
            "the epilogue asks for its position");
}

} // namespace
