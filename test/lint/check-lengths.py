#!/usr/bin/env python3
"""No file of C++ has more than 500 lines, no function more than 80.

A function counts from its first line to its closing brace, with the lambdas in it.
"""
import pathlib
import sys

from sources import functions, settle, tracked

MAX_FILE, MAX_FUNCTION = 500, 80
KNOWN = dict.fromkeys([
    "frontends/graph/Search.cpp attn::graph::addSearch",
    "frontends/onnx/Building.cpp",
    "frontends/onnx/LoopImport.cpp",
    "frontends/onnx/Symbolic.cpp",
    "frontends/onnx/ops/ContribAttention.cpp",
    "frontends/onnx/ops/DataMovement.cpp",
    "frontends/search/BuildSearch.cpp",
    "passes/graph/AttentionBuild.cpp",
    "passes/graph/AttentionBuild.cpp AttentionBuilder::arrange",
    "passes/graph/AttentionBuild.cpp AttentionBuilder::build",
    "passes/graph/AttentionDims.cpp AttentionBuilder::classify",
    "passes/graph/AttentionMatch.cpp matchAttention",
    "passes/graph/AttentionScores.cpp",
    "passes/graph/CellMatch.cpp",
    "passes/graph/MaskMining.cpp",
    "passes/graph/PositionReader.cpp",
    "passes/graph/PositionReader.cpp PositionReader::scalar",
    "passes/graph/RecognizeAttention.cpp visit",
    "passes/kernels/cpu/AttentionBlock.cpp",
    "passes/kernels/cpu/AttentionRow.cpp",
    "passes/kernels/cpu/CtcText.cpp",
    "passes/kernels/cpu/Gemm.cpp",
    "passes/kernels/cpu/Gemm.cpp GemmEmitter::emit",
    "passes/kernels/cpu/SearchChoice.cpp",
    "passes/kernels/gpu/CtcGreedy.cpp attn::buildGpuCtcGreedy",
    "passes/lowering/buffers/LowerRuntime.cpp",
    "passes/lowering/cpu/CtcSearch.cpp attn::lowerCtcSearch",
    "passes/lowering/cpu/LowerContractions.cpp",
    "passes/lowering/cpu/LowerContractions.cpp ContractionLowering::emitCall",
    "passes/lowering/cpu/SearchLoop.cpp",
    "passes/lowering/gpu/MoveLoops.cpp",
    "passes/lowering/gpu/StepRanges.cpp StepRanges::emit",
    "test/compiler/PackageTest.cpp TEST_F",
    "test/gpu/Faults.cpp main",
    "test/gpu/interpreter/Parser.cpp",
    "test/kernels/AttentionHarness.cpp Attention::text",
    "test/kernels/GemmTest.cpp",
    "test/kernels/GemmTest.cpp checkGemm",
    "tools/attn-bench/attn-bench.cpp runTool",
    "tools/attnc/Worker.cpp runWorker",
    "tools/attnc/attnc.cpp",
    "tools/attnc/attnc.cpp readRequest",
    "tools/interpret/InterpretTensor.cpp Interpreter::runTensor",
    "tools/interpret/ScalarOps.cpp rules",
], "what is to be split")


def too_long(root):
    """{name: what is wrong} of each file and function."""
    problems = {}
    for name in tracked(root, r"\.(c|cpp|h)$"):
        text = (root / name).read_text()
        if (lines := text.count("\n")) > MAX_FILE:
            problems[name] = f"{lines} lines, more than {MAX_FILE}"
        for function, first, lines in functions(text):
            if lines > MAX_FUNCTION:
                problems[f"{name} {function}"] = f"{lines} lines from line {first} on, more than {MAX_FUNCTION}"
    return problems


if __name__ == "__main__":
    sys.exit(settle(too_long(pathlib.Path(sys.argv[1])), KNOWN))
