#ifndef PASSES_LOWERING_CHOOSE_CHOOSEPASSES_TD
#define PASSES_LOWERING_CHOOSE_CHOOSEPASSES_TD

include "mlir/Pass/PassBase.td"

def StoreBlocksPass : Pass<"attn-store-blocks", "::mlir::ModuleOp"> {
  let summary = "products by a weight become attn.block_product, the weight codes of 4 or 8 bits";
  let description = [{
    A contraction of rows and an f32 weight, a matrix, becomes `attn.block_product`
    by codes that the compiler makes of it (`#attn.block_codes`, `#attn.block_scales`).
    attn-lower-block-products or attn-choose-gpu-rows finds their kernel. A
    contraction with another shape stays f32, and the module's `attn.product_report`
    says why. Codes of 8 bits have a block for each column, or blocks of GROUP rows.

    Numerical effect: a weight differs by at most 1/14 of the greatest in its block,
    or, with codes down to -8, the one nearest to it on the other side by 1/8; in
    codes of 8 bits by 1/254 of it.

    ```mlir
    %c = linalg.contract indexing_maps = [(s, n, k) -> (s, k), (s, n, k) -> (k, n), (s, n, k) -> (s, n)]
        ins(%x, %w : tensor<?x80xf32>, tensor<80x6xf32>) outs(%zeros : tensor<?x6xf32>)
    // becomes
    attn.global @w_blocks32 : tensor<80x6xi8> = #attn.block_codes<@w, transposed = false, block = 32, bits = 4>
    attn.global @w_blocks32_scales : tensor<3x6xf32> = #attn.block_scales<@w, transposed = false, block = 32, bits = 4>
    %c = attn.block_product %x by %codes scales %scales block 32 bits 4
        : tensor<?x80xf32> by tensor<80x6xi8> scales tensor<3x6xf32> -> tensor<?x6xf32>
    ```
  }];
  let options = [
    Option<"weights", "weights", "std::string", "\"int4:32\"", "int4:BLOCK (of 16, 32, 64, 128 or 256), int8 or int8:GROUP">,
    Option<"narrowsRows", "narrow-rows", "bool", "false", "rows may be rounded to 8 bits">
  ];
  let dependentDialects = ["::attn::AttnDialect"];
}

#endif // PASSES_LOWERING_CHOOSE_CHOOSEPASSES_TD
