#ifndef FRONTENDS_ONNX_OPS_FAMILIES_H
#define FRONTENDS_ONNX_OPS_FAMILIES_H

#include "frontends/onnx/Importer.h"

namespace attn::onnx {

// Parts of the families of Importer.h that have a file of their own.
void registerActivationOps(OpRegistry &);          // Activation.cpp: unary formulae, Clip, PRelu
void registerEinsumOps(OpRegistry &);              // Einsum.cpp
void registerConvolutionOps(OpRegistry &);         // Convolution.cpp
void registerConvTransposeOps(OpRegistry &);       // ConvTranspose.cpp
void registerPoolingOps(OpRegistry &);             // Pooling.cpp
void registerScanReductionOps(OpRegistry &);       // ArgReduction.cpp: ArgMax, ArgMin, CumSum, TopK
void registerRotaryOps(OpRegistry &);              // Rotary.cpp: RotaryEmbedding
void registerGridSampleOps(OpRegistry &);          // GridSample.cpp: GridSample, AffineGrid
void registerScatterOps(OpRegistry &);             // Scatter.cpp: Scatter*, TensorScatter
void registerQuantizationOps(OpRegistry &);        // Quantization.cpp: QuantizeLinear ... QLinearConv
void registerResizeOps(OpRegistry &);              // Resize.cpp: Resize, Upsample
void registerSignalOps(OpRegistry &);              // Signal.cpp: windows, DFT, STFT, MelWeightMatrix
void registerLinearAttentionOps(OpRegistry &);     // LinearAttention.cpp: LinearAttention, CausalConvWithState
void registerContribOps(OpRegistry &);             // Contrib.cpp: com.microsoft
void registerContribAttentionOps(OpRegistry &);    // ContribAttention.cpp: com.microsoft
void registerGroupQueryAttentionOps(OpRegistry &); // GroupQueryAttention.cpp: com.microsoft
void registerContribDecodingOps(OpRegistry &);     // ContribDecoding.cpp: com.microsoft
void registerContribPackedOps(OpRegistry &);       // ContribPacked.cpp: com.microsoft
void registerContribDiffusionOps(OpRegistry &);    // ContribDiffusion.cpp: com.microsoft
void registerContribFusedOps(OpRegistry &);        // ContribFused.cpp: com.microsoft
void registerContribQLinearOps(OpRegistry &);      // ContribQLinear.cpp: com.microsoft
void registerContribQuantizedOps(OpRegistry &);    // ContribQuantized.cpp: com.microsoft
void registerMixtureOps(OpRegistry &);             // MixtureOfExperts.cpp: com.microsoft
void registerBlockQuantizedOps(OpRegistry &);      // BlockQuantized.cpp: com.microsoft
void registerSliceOps(OpRegistry &);               // Slice.cpp
void registerDetectionOps(OpRegistry &);           // Detection.cpp: NonMaxSuppression, RoiAlign
void registerLossOps(OpRegistry &);                // Loss.cpp
void registerSelectionOps(OpRegistry &);           // Selection.cpp: NonZero, Compress, Unique
void registerRearrangementOps(OpRegistry &);       // Rearrangement.cpp: DepthToSpace, ReverseSequence, CenterCropPad
void registerDeterminantOps(OpRegistry &);         // Determinant.cpp: Det
void registerFoldingOps(OpRegistry &);             // Folding.cpp: Col2Im, MaxUnpool
void registerFlexAttentionOps(OpRegistry &);       // FlexAttention.cpp: FlexAttention
void registerDeformConvOps(OpRegistry &);          // DeformConv.cpp: DeformConv
void registerFeatureOps(OpRegistry &);             // Features.cpp: TfIdfVectorizer, Binarizer, ArrayFeatureExtractor
void registerRandomOps(OpRegistry &);              // Random.cpp: Bernoulli, Dropout, Multinomial, Random*
void registerTreeOps(OpRegistry &);                // TreeEnsemble.cpp: ai.onnx.ml

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_FAMILIES_H
