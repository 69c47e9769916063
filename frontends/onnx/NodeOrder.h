#ifndef FRONTENDS_ONNX_NODEORDER_H
#define FRONTENDS_ONNX_NODEORDER_H

#include "frontends/onnx/ModelFile.h"

#include <vector>

namespace attn::onnx {

/// The nodes of a graph such that each stands behind those that make what it, or a graph in it, uses: the order that
/// the ONNX IR specification asks for ("Graphs") and some converters don't keep. Nodes that are in order stay where
/// they are. Nodes of a cycle come last, as they were. Graphs nest at most as deep as Functions::check allows.
std::vector<const proto::NodeProto *> inOrder(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes);

/// Removes the nodes of a graph that make nothing of what its outputs need.
void removeUnused(proto::GraphProto &graph);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_NODEORDER_H
