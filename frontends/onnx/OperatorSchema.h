#ifndef FRONTENDS_ONNX_OPERATORSCHEMA_H
#define FRONTENDS_ONNX_OPERATORSCHEMA_H

#include "frontends/onnx/Graph.h"

namespace attn::onnx {

/// What the standard says of one version of an operator: OperatorSchemas.inc, which the onnx package's schemas make.
struct OperatorSchema {
  enum class Option { single, optional, variadic, mixed }; // mixed: variadic, each of another type
  struct Parameter {
    llvm::StringRef name, type; ///< `type`: the parameter's, "" where it has but one
    uint64_t types = 0;         ///< bit n: a tensor of data type n; bit 32 + n: a sequence of such; of inputs only
    Option option = Option::single;
    size_t least = 1; ///< of a variadic one
    bool isVariadic() const { return option >= Option::variadic; }
  };
  struct Attribute {
    llvm::StringRef name;
    proto::AttributeProto::AttributeType type;
    bool isRequired;
  };
  std::string name; ///< "Gemm-13"
  llvm::SmallVector<Parameter, 4> inputs, outputs;
  llvm::SmallVector<Attribute, 4> attributes;

  /// Null for an operator that the standard does not have.
  static const OperatorSchema *find(llvm::StringRef domain, llvm::StringRef op, int version);
};

/// Numbers of inputs and outputs, and names and types of attributes. False after a diagnostic.
bool checkSignature(const GraphNode &node, mlir::Location loc, Reporter &reporter);

/// The types of the inputs, each of which is a value or null. False after a diagnostic.
bool checkTypes(const OperatorSchema &schema, llvm::ArrayRef<const Tensor *> inputs, mlir::Location loc,
                Reporter &reporter);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPERATORSCHEMA_H
