#ifndef DIALECTS_ATTN_RECURRENTOPS_TD
#define DIALECTS_ATTN_RECURRENTOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Whole recurrent layers. Source: ONNX RNN, GRU and LSTM, versions 7 to 22.

def Attn_Direction : I32EnumAttr<"Direction", "the order in which a layer reads its sequence", [
    I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"reverse", 1>, I32EnumAttrCase<"bidirectional", 2>]> {
  let cppNamespace = "::attn";
  let genSpecializedAttr = 0;
}
def Attn_DirectionAttr : EnumAttr<Attn_Dialect, Attn_Direction, "direction"> {
  let assemblyFormat = "$value";
}

def Attn_ActivationKind : I32EnumAttr<"ActivationKind", "a function of one number", [
    I32EnumAttrCase<"sigmoid", 0>, I32EnumAttrCase<"tanh", 1>, I32EnumAttrCase<"relu", 2>,
    I32EnumAttrCase<"affine", 3>, I32EnumAttrCase<"leaky_relu", 4>, I32EnumAttrCase<"thresholded_relu", 5>,
    I32EnumAttrCase<"scaled_tanh", 6>, I32EnumAttrCase<"hard_sigmoid", 7>, I32EnumAttrCase<"elu", 8>,
    I32EnumAttrCase<"softsign", 9>, I32EnumAttrCase<"softplus", 10>]> {
  let cppNamespace = "::attn";
  let genSpecializedAttr = 0;
}

def Attn_ActivationAttr : Attn_Attr<"Activation", "activation"> {
  let summary = "an activation function with its constants";
  let description = [{
    `affine`: alpha x + beta · `leaky_relu`: x < 0 ? alpha x : x ·
    `thresholded_relu`: x > alpha ? x : 0 · `scaled_tanh`: alpha tanh(beta x) ·
    `hard_sigmoid`: min(max(alpha x + beta, 0), 1) · `elu`: x < 0 ? alpha (e^x - 1) : x ·
    `softsign`: x / (1 + |x|) · `softplus`: log(1 + e^x). A constant that is
    not given is 0.

    ```mlir
    #attn.activation<hard_sigmoid, alpha = 0.2 : f64, beta = 0.5 : f64>
    ```
  }];
  let parameters = (ins EnumParameter<Attn_ActivationKind>:$kind, OptionalParameter<"::mlir::FloatAttr">:$alpha,
                        OptionalParameter<"::mlir::FloatAttr">:$beta);
  let assemblyFormat = "`<` $kind (`,` `alpha` `=` $alpha^)? (`,` `beta` `=` $beta^)? `>`";
}

class Attn_RecurrentOp<string mnemonic, dag ownArguments, dag ownResults, string ownOperands, string ownAttributes,
                       string ownResultTypes>
    : Attn_Op<mnemonic, [Pure, AttrSizedOperandSegments,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let arguments = !con((ins
    AnyRankedTensor:$input /*C1 C2*/,
    Optional<AnyRankedTensor>:$weight /*C1 C2*/,
    AnyRankedTensor:$recurrence /*C1 C2*/,
    Optional<AnyRankedTensor>:$bias /*C1 C2*/,
    Optional<AnyRankedTensor>:$lengths /*C2 C3*/,
    Optional<AnyRankedTensor>:$initial_h /*C1 C2*/), ownArguments, (ins
    Attn_DirectionAttr:$direction,
    TypedArrayAttrBase<Attn_ActivationAttr, "activations">:$activations /*C4*/,
    OptionalAttr<F64Attr>:$clip /*C5*/,
    UnitAttr:$batch_first));
  let results = !con((outs AnyRankedTensor:$sequence, AnyRankedTensor:$last_h), ownResults);
  let assemblyFormat = [{
    $direction $activations (`clip` $clip^)? (`batch_first` $batch_first^)?
  }] # ownAttributes # [{
    `ins` `(` custom<LayerInputs>($input, $weight, $recurrence, type($input), type($weight), type($recurrence)) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`lengths` `(` $lengths^ `:` type($lengths) `)`)?
    (`initial_h` `(` $initial_h^ `:` type($initial_h) `)`)?
  }] # ownOperands # [{
    attr-dict `->` type($sequence) `,` type($last_h)
  }] # ownResultTypes;
  let hasVerifier = 1;
  // What holds for each of them.
  string constraints = [{

    Sizes: S steps, B items, I inputs, H units (static), G gates, D directions
    (2 for `bidirectional`). With `batch_first` the batch comes first in input,
    initial states and results.

    | operand | shape | batch_first |
    |-|-|-|
    | input (without weight: its product with it) | S B I (S B D·G·H) | B S I (B S D·G·H) |
    | weight, if any | D G·H I | |
    | recurrence | D G·H H | |
    | bias (of weight, then of recurrence) | D 2·G·H | |
    | lengths | B | |
    | initial_h, last_h (and _c) | D B H | B D H |
    | sequence | S D B H | B S D H |

    Item b has `lengths[b]` steps (in [0, S], S without lengths); `reverse`
    begins with the last of them. Beyond them the sequence is 0; the last state
    is that after the item's last step, and the initial one for an item of no
    step. States start at 0 where not given. `clip` bounds the argument of each
    activation to [-clip, clip], but not that of an LSTM's h(c), as in ONNX Runtime. Sums and states are kept in f32 (f64 for f64).

    * (C1) all but lengths have one float element type;
    * (C2) the shapes are those of the table, sizes that are static agree, H is
           static and not 0;
    * (C3) lengths are i32;
    * (C4) one activation a function and direction;
    * (C5) clip is greater than 0.
  }];
}

def Attn_RnnOp : Attn_RecurrentOp<"rnn", (ins), (outs), "", "", ""> {
  let summary = "a simple recurrent layer";
  let description = [{
    `h = f(x W^T + h R^T + b)`; G = 1, one activation: f.
  }] # constraints # [{

    ```mlir
    %y, %h = attn.rnn forward [#attn.activation<tanh>]
        ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>)
        -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>
    ```
  }];
}

def Attn_GruOp : Attn_RecurrentOp<"gru", (ins UnitAttr:$linear_before_reset, UnitAttr:$mirrored), (outs), "",
    "(`linear_before_reset` $linear_before_reset^)? (`mirrored` $mirrored^)?", ""> {
  let summary = "a layer of gated recurrent units";
  let description = [{
    Gates z, r, n (G = 3), activations f, g:

        z = f(x Wz^T + h Rz^T + b)    r = f(x Wr^T + h Rr^T + b)
        n = g(x Wn^T + (r h) Rn^T + b)              or, linear_before_reset,
        n = g(x Wn^T + bw + r (h Rn^T + br))
        h = (1 - z) n + z h                         or, mirrored, z n + (1 - z) h
  }] # constraints # [{

    ```mlir
    %y, %h = attn.gru reverse [#attn.activation<sigmoid>, #attn.activation<tanh>] linear_before_reset
        ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x48x8xf32>, tensor<1x48x16xf32>)
        bias(%b : tensor<1x96xf32>) -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>
    ```
  }];
}

def Attn_LstmOp : Attn_RecurrentOp<"lstm",
    (ins Optional<AnyRankedTensor>:$initial_c /*C1 C2*/, Optional<AnyRankedTensor>:$peephole /*C1 C2*/,
         UnitAttr:$input_forget),
    (outs AnyRankedTensor:$last_c), [{
    (`initial_c` `(` $initial_c^ `:` type($initial_c) `)`)?
    (`peephole` `(` $peephole^ `:` type($peephole) `)`)?
    }], "(`input_forget` $input_forget^)?", "`,` type($last_c)"> {
  let summary = "a layer of long short-term memory";
  let description = [{
    Gates i, o, f, c (G = 4), activations f, g, h, peepholes Pi, Po, Pf (D 3·H):

        i = f(x Wi^T + h Ri^T + Pi c + b)    f = f(x Wf^T + h Rf^T + Pf c + b), or 1 - i with input_forget
        c = f c + i g(x Wc^T + h Rc^T + b)   o = f(x Wo^T + h Ro^T + Po c + b), c the new one
        h = o h(c)
  }] # constraints # [{

    ```mlir
    %y, %h, %c = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
        ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>)
        -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
    ```
  }];
}

#endif // DIALECTS_ATTN_RECURRENTOPS_TD
