"""annotated.py MODEL ANNOTATED.onnx GRAPHS.json REPORT.json: both say of each node what the report says."""
import json
import sys

import onnx

MODEL, ANNOTATED, GRAPHS, REPORT = sys.argv[1:]
model, annotated = onnx.load(MODEL), onnx.load(ANNOTATED)
graphs, verdicts = (json.load(open(path)) for path in (GRAPHS, REPORT))


def strip(proto):
    """Without what was added."""
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    return proto


def called(node):
    return f"node '{node.name or node.output[0]}' ({node.op_type})"


onnx.checker.check_model(annotated)
facts = {called(node): {p.key: p.value for p in node.metadata_props} for node in annotated.graph.node}
docs = {called(node): node.doc_string for node in annotated.graph.node}
assert strip(onnx.load(ANNOTATED)).SerializeToString(deterministic=True) == strip(model).SerializeToString(deterministic=True), \
    "something else than annotations differs"

[graph] = [graph for graph in graphs if "/" not in graph["id"]]
nodes = {node["id"]: node for graph in graphs for node in graph["nodes"]}
shown = {f"node '{attrs['name']}' ({node['label']})": (node, attrs) for node in graph["nodes"] if "attrs" in node
         for attrs in [{a["key"]: a["value"] for a in node["attrs"]}]}
assert set(shown) == set(facts), "a node is missing"
for node in graph["nodes"]:
    assert all(edge["sourceNodeId"] in nodes for edge in node.get("incomingEdges", [])), node
    assert set(node) <= {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata", "subgraphIds", "style"}, node

parts = 0
for verdict in verdicts:
    of_softmax = facts[verdict["node"]]
    assert of_softmax["attnc.verdict"] == verdict["verdict"] and f"verdict: {verdict['verdict']}" in docs[verdict["node"]]
    assert of_softmax.get("attnc.reason", "") == verdict["reason"]
    assert shown[verdict["node"]][1]["attnc: verdict"] == verdict["verdict"]
    if verdict["verdict"] != "fused":
        assert "style" not in shown[verdict["node"]][0]
        continue
    assert of_softmax["attnc.formula"] == "; ".join(verdict["formula"])
    assert of_softmax["attnc.kernel_symbol"] == verdict["kernel_symbol"]
    layer = shown[verdict["node"]][0]["namespace"]
    assert "fused attention of " in layer, layer
    for part in verdict["nodes"]:
        node, _ = shown[part]
        assert node["namespace"] == layer and node["style"], (part, node["namespace"])
        parts += 1
        if part != verdict["node"]:
            assert facts[part]["attnc.fused_into"] == verdict["node"], part
fused_into = sum("attnc.fused_into" in fact for fact in facts.values())
assert fused_into == parts - sum(v["verdict"] == "fused" for v in verdicts)
print(f"{len(facts)} nodes, {fused_into} of them part of {sum(v['verdict'] == 'fused' for v in verdicts)} attentions")
