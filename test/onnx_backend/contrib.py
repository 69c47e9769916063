#!/usr/bin/env python3
"""Operators of com.microsoft against ONNX Runtime: one model a case, the same
inputs to both.

    contrib.py [--only PART] [--server PROGRAM]
"""
import argparse
import sys

import numpy as np

import backend
import contrib_classical as classical
import contrib_decoders as decoders
import contrib_experts as experts
import contrib_floats as floats
import contrib_quantised as quantised
from contrib_cases import CASES, build

# In this order they draw.
FAMILIES = (floats.activations, floats.normalisations, floats.products, quantised.operator_form, quantised.channels_last,
            floats.diffusion, quantised.quantised_embeddings, quantised.quantised_attentions, quantised.blocks,
            quantised.quantised_products, quantised.quantised_recurrence, experts.experts, floats.rotary, floats.attentions,
            floats.grouped, experts.routers, classical.features, classical.trees, decoders.packed, decoders.decoder,
            decoders.sparse, decoders.float8_products)


def main():
    import onnxruntime
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    p.add_argument("--server", default=backend.SERVER)
    args = p.parse_args()
    for family in FAMILIES:
        family()
    options = onnxruntime.SessionOptions()
    # Without it, sums of two products saturate in 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    server, passed, failed = backend.Server(args.server), 0, 0
    for name, op, inputs, outputs, rtol, atol, domain, check, oracle, attributes in CASES:
        if args.only not in name:
            continue
        model, feeds, names = build(op, inputs, outputs, domain, attributes)
        asked, known = model, feeds
        if isinstance(oracle, (list, tuple)):
            given, more = oracle if isinstance(oracle, tuple) else (oracle, {})
            asked, known = build(op, given, outputs, domain, {**attributes, **more})[:2]
        try:
            if callable(oracle):
                want = oracle()
            else:
                session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
                want = session.run(names, known)
        except Exception as error:  # of no common class
            failed += 1
            print(f"FAIL {name}: ONNX Runtime refuses it: " + " ".join(str(error).split())[:300])
            continue
        try:
            got, _ = server.run(model, feeds, names)
            if check:
                got, want = check(got), check(want)
            for g, w in zip(got, want):
                np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
            passed += 1
        except (backend.Refused, AssertionError) as error:
            failed += 1
            print(f"FAIL {name}: " + " ".join(str(error).split())[:300])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
