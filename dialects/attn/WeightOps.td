#ifndef DIALECTS_ATTN_WEIGHTOPS_TD
#define DIALECTS_ATTN_WEIGHTOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// A weight is a symbol with a lazy expression. Its bytes are never in the IR:
// the WeightStore holds what the file holds, and compiler/package evaluates the
// expression while it writes the library.

def Attn_InitializerAttr : Attn_Attr<"Initializer", "initializer"> {
  let summary = "the bytes stored under a name in the WeightStore";
  let parameters = (ins StringRefParameter<"name in the WeightStore">:$name);
  let assemblyFormat = "`<` $name `>`";
}

def Attn_TransposeAttr : Attn_Attr<"Transpose", "transpose"> {
  let summary = "another weight with permuted dimensions: result dim n is source dim permutation[n]";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, ArrayRefParameter<"int64_t">:$permutation);
  let assemblyFormat = "`<` $source `,` `[` $permutation `]` `>`";
}

def Attn_ReshapeAttr : Attn_Attr<"Reshape", "reshape"> {
  let summary = "another weight's elements under another shape";
  let description = [{
    Of the same number of elements. The element type is that of the source, or
    bf16 or f16 where the source is f32: each is rounded to the nearest, ties to
    even, and what is finite stays finite (in f16 up to 65504, of either sign).
    Where the source is bf16 or f16 it may be f32, which is exact; where it is i8 it
    may be f8E4M3FN, the same bits.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source);
  let assemblyFormat = "`<` $source `>`";
}

def Attn_SliceAttr : Attn_Attr<"Slice", "slice"> {
  let summary = "rows [offset, offset + size) of one dimension of another weight";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "int64_t":$dim, "int64_t":$offset, "int64_t":$size);
  let assemblyFormat = "`<` $source `,` `dim` $dim `at` $offset `size` $size `>`";
}

def Attn_ConcatAttr : Attn_Attr<"Concat", "concat"> {
  let summary = "several weights one after the other in one dimension";
  let parameters = (ins ArrayRefParameter<"::mlir::FlatSymbolRefAttr">:$sources, "int64_t":$dim);
  let assemblyFormat = "`<` `[` $sources `]` `,` `dim` $dim `>`";
}

def Attn_PackPanelsAttr : Attn_Attr<"PackPanels", "pack_panels"> {
  let summary = "the second matrix of a GEMM as column panels";
  let description = [{
    A source of shape K x N (or N x K when `transposed`) becomes
    ceil(N / width) x K x width: panel p holds columns p*width.. of every row,
    zeros beyond N.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width);
  let assemblyFormat = "`<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `>`";
}

def Attn_NarrowPanelsAttr : Attn_Attr<"NarrowPanels", "narrow_panels"> {
  let summary = "pack_panels of an f32 matrix, stored in fewer bits";
  let description = [{
    The global's element type says in which:

    * bf16: ceil(N / width) x ceil(K / 2) x 2*width. Column c of rows 2k and
      2k+1 stands at 2c and 2c+1: one 32-bit word. Rounded to the nearest even;
      `group` is 0. With `depth`, K is padded with zeros to a multiple of it, which
      is even. With `parts`, each element is the sum of so many: the rounded one,
      what that leaves of it, rounded, and so on; those of part p stand from
      p * 2*width on in a last dimension of parts * 2*width.
    * i8: ceil(N / width) x K x width. An element is w / scale rounded to the
      nearest, where `#attn.panel_scales` of the same parameters holds the scale
      of each column and `group` rows.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width, "int64_t":$group,
    DefaultValuedParameter<"int64_t", "1">:$depth, DefaultValuedParameter<"int64_t", "1">:$parts);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `,` `group` `=` $group
    (`depth` $depth^)? (`parts` $parts^)? `>`
  }];
}

def Attn_PanelScalesAttr : Attn_Attr<"PanelScales", "panel_scales"> {
  let summary = "ceil(N / width) x ceil(K / group) x width: the scales of narrow_panels in i8";
  let description = [{
    The greatest |w| of the group over 127; 0 where all of it is 0.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width, "int64_t":$group);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `,` `group` `=` $group `>`
  }];
}

def Attn_BlockCodesAttr : Attn_Attr<"BlockCodes", "block_codes"> {
  let summary = "an f32 matrix as codes of 4 or 8 bits, in blocks along K that share a scale";
  let description = [{
    A source of shape K x N (or N x K when `transposed`) becomes i8 of the same
    shape: w / scale rounded to the nearest, from -2^(bits - 1) to 2^(bits - 1) - 1,
    where `#attn.block_scales` of the same parameters holds the scale of each column
    and `block` rows. With 8 bits the codes may be f8E4M3FN: w / scale rounded to the
    nearest number of e4m3, ties to even.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$block, "int64_t":$bits);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `block` `=` $block `,` `bits` `=` $bits `>`
  }];
}

def Attn_BlockScalesAttr : Attn_Attr<"BlockScales", "block_scales"> {
  let summary = "ceil(K / block) x N, or N x ceil(K / block) when `transposed`: the scales of block_codes, in f32";
  let description = [{
    The greatest |w| of the block over the greatest code, or, of 4 bits, that w over
    the least, whichever leaves the smaller sum of squared errors; 0 where all of it
    is 0.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$block, "int64_t":$bits);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `block` `=` $block `,` `bits` `=` $bits `>`
  }];
}

// As i32 they are words: ceil(N / width) x ceil(K / group) x width, a word the `group` rows of a column in 32 / group
// bits each, from 0 on (numbers of a source that is not `unsigned` get half their range added). Byte i of a word holds
// rows i, i + 4, ..., the first one in its low bits.
def Attn_BytePanelsAttr : Attn_Attr<"BytePanels", "byte_panels"> {
  let summary = "an i8 matrix as column panels whose rows lie in groups, as products of bytes read them";
  let description = [{
    A source of shape K x N (or N x K when `transposed`) becomes
    ceil(N / width) x ceil(K / group) x width*group: column c of rows group*k..
    stands from c*group on, so that one lane of a register has the rows that an
    instruction sums. Zeros beyond K and N. With `unsigned` the source's elements
    are 0 to 255, and 128 less is stored.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width, "int64_t":$group,
    "bool":$isUnsigned);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `,` `group` `=` $group `,`
    `unsigned` `=` $isUnsigned `>`
  }];
}

def Attn_ColumnSumsAttr : Attn_Attr<"ColumnSums", "column_sums"> {
  let summary = "ceil(N / width) x width: the sums of the columns of what byte_panels stores, in i32";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width, "bool":$isUnsigned);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `,` `unsigned` `=` $isUnsigned `>`
  }];
}

def Attn_StepOrderAttr : Attn_Attr<"StepOrder", "step_order"> {
  let summary = "ceil(N / width) x (2 + floor(K / group)), in i16 or i32: which groups of rows of a panel are narrow";
  let description = [{
    Of what byte_panels stores. Narrow is a group of rows that vpmaddubsw multiplies exactly: 255 times two rows side by
    side (0 and 1, 2 and 3, ... of the group), added, fit 16 bits in each column, which they do unless both lie on one
    side of 0, together more than 128 from it. Two groups are a double if all four such rows do.

    First how many groups stand in doubles, then how many others are narrow; then the numbers of all whole groups: those
    of each double, narrow ones, the rest.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$source, "bool":$transposed, "int64_t":$width, "int64_t":$group,
    "bool":$isUnsigned);
  let assemblyFormat = [{
    `<` $source `,` `transposed` `=` $transposed `,` `width` `=` $width `,` `group` `=` $group `,`
    `unsigned` `=` $isUnsigned `>`
  }];
}

def Attn_GlobalOp : Attn_Op<"global", [Symbol]> {
  let summary = "a weight: a name, a type and how to compute its bytes";
  let description = [{
    * (C1) `expression` is one of `#attn.initializer`, `transpose`, `reshape`,
           `slice`, `concat`, `pack_panels`, `narrow_panels`, `panel_scales`,
           `byte_panels`, `column_sums` and `step_order`;
    * (C2) the type has a static shape.

    ```mlir
    attn.global @w : tensor<384x1536xf32> = #attn.initializer<"encoder.0.w">
    attn.global @w_panels : tensor<32x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, AnyAttr:$expression /*C1*/);
  let assemblyFormat = "$sym_name `:` $type `=` $expression attr-dict";
  let hasVerifier = 1;
}

def Attn_WeightOp : Attn_Op<"weight", [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<BufferizableOpInterface, ["isWritable", "bufferize"]>]> {
  let summary = "the value of an attn.global";
  let description = [{
    * (C1) `global` names an `attn.global` of the same shape and element type.

    ```mlir
    %w = attn.weight @w : tensor<384x1536xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$global);
  let results = (outs AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$result);
  let assemblyFormat = "$global attr-dict `:` type($result)";
}

#endif // DIALECTS_ATTN_WEIGHTOPS_TD
