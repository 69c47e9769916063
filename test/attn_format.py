"""lit's shell tests, plus three kinds that are found and not written down.

A directory's *.mlir and *.test files are shell tests. In test/unit the tests
are the programs that add_attnc_unittest built; in test/e2e/models each folder
with a model.onnx is one, run by test/e2e/check_model.py, and in the full check
another one, gpu/models/NAME: the same for CUDA, through the PTX interpreter.
"""
import os
import re
import subprocess

import lit.formats
import lit.Test


class AttnFormat(lit.formats.ShTest):
    def __init__(self):
        super().__init__(True)

    def getTestsInDirectory(self, suite, path_in_suite, lit_config, local_config):
        if path_in_suite == ("unit",):
            folder = os.path.join(suite.exec_root, "unit")
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.access(path, os.X_OK) and "." not in name:
                    yield self.early(lit.Test.Test(suite, path_in_suite + (name,), local_config, file_path=path))
        elif path_in_suite == ("e2e", "models"):
            yield from self.models(suite, path_in_suite, local_config)
        elif path_in_suite[:2] != ("e2e", "models"):
            yield from map(self.early, super().getTestsInDirectory(suite, path_in_suite, lit_config, local_config))
            if path_in_suite == ("gpu",) and "full" in local_config.available_features:
                yield from self.models(suite, ("gpu", "models"), local_config)

    @staticmethod
    def early(test):
        """Long ones start first, so that no core waits for the last one; lit itself knows that from the second run on."""
        long = "full.test|/gemm-test|attention-kernel-test|gpu/(kernels|ptxas|search)|serve/"
        if not test.previous_elapsed and re.search(long, "/".join(test.path_in_suite)):
            test.previous_elapsed = 100
        return test

    def models(self, suite, path, config):
        folder = suite.getSourcePath(("e2e", "models"))
        for name in sorted(os.listdir(folder)):
            if os.path.exists(os.path.join(folder, name, "model.onnx")):
                yield lit.Test.Test(suite, path + (name,), config, file_path=os.path.join(folder, name))

    @staticmethod
    def isFirstExport(path):
        """Of the folders of one model: bert_sdpa_dynamo18, not bert_sdpa_dynamo23 and bert_sdpa_ts17."""
        folder, name = os.path.split(path)
        export = re.compile(re.escape(name.rpartition("_")[0]) + r"_(dynamo|ts)\d+")
        return name == min(filter(export.fullmatch, os.listdir(folder)), default=name)

    def execute(self, test, lit_config):
        config, environment = test.config, dict(test.config.environment)
        if test.path_in_suite[:1] == ("unit",):
            command = [test.file_path, "--gtest_brief=1"]
        elif test.path_in_suite[1:2] == ("models",):
            command = [config.attn_python, os.path.join(config.attn_source_dir, "test/e2e/check_model.py"),
                       test.file_path, "--tools=" + os.path.join(config.attn_build_dir, "bin")]
            if test.path_in_suite[0] == "gpu":
                command.append("--target=cuda")
                # Exports of one model differ before attentions are recognised: kernels for fixed shapes are the same.
                if not self.isFirstExport(test.file_path):
                    command.append("--dynamic-only")
                environment["LD_LIBRARY_PATH"] = os.path.join(config.attn_build_dir, "test/gpu/lib")
            elif "full" in config.available_features:
                command.append("--verify-fusion")
        else:
            return super().execute(test, lit_config)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                              timeout=1800, errors="replace", text=True)
        code = lit.Test.PASS if done.returncode == 0 else lit.Test.FAIL
        return code, "" if code is lit.Test.PASS else done.stdout
