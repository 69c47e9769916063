#!/usr/bin/env python3
"""Compares the importer's operators ("domain Operator version" a line) with the
schemas of the onnx package: no known version may be missing."""
import collections
import sys

import onnx.defs

OPSETS = range(1, 29)

# What ONNX Runtime writes into the default domain against the standard.
OPTIMIZED = {("", "SimplifiedLayerNormalization"): {1}, ("", "LayerNormalization"): {1}}

ours, theirs = collections.defaultdict(set), collections.defaultdict(set)
for line in open(sys.argv[1]):
    domain, op, version = line.split()
    ours["" if domain == "ai.onnx" else domain, op].add(int(version))
for schema in onnx.defs.get_all_schemas_with_history():
    theirs[schema.domain, schema.name].add(schema.since_version)

failed = False
for (domain, op), versions in sorted(ours.items()):
    known = theirs.get((domain, op))
    versions -= OPTIMIZED.get((domain, op), set())
    if not versions:
        continue
    if not known:
        print(f"{op}: unknown to the onnx package")  # an operator of another domain
        failed |= domain == ""
        continue
    # Versions in force for some opset in reach, from our first one on.
    needed = {max((v for v in known if v <= opset), default=None) for opset in OPSETS} - {None}
    missing = {v for v in needed if v >= min(versions)} - versions
    strange = versions - known
    if missing or strange:
        failed = True
        print(f"{op}: missing {sorted(missing)}, not a version {sorted(strange)}")
sys.exit(failed)
