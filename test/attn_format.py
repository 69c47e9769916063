"""lit's shell tests, plus the GoogleTest programs of build/test/unit.

A directory's *.mlir and *.test files are shell tests. The directory test/unit
is virtual: its tests are the programs that add_attnc_unittest built.
"""
import os
import subprocess

import lit.formats
import lit.Test


class AttnFormat(lit.formats.ShTest):
    def __init__(self):
        super().__init__(True)

    def getTestsInDirectory(self, suite, path_in_suite, lit_config, local_config):
        yield from super().getTestsInDirectory(suite, path_in_suite, lit_config, local_config)
        if path_in_suite == ("unit",):
            folder = os.path.join(suite.exec_root, "unit")
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.access(path, os.X_OK) and "." not in name:
                    yield lit.Test.Test(suite, path_in_suite + (name,), local_config, file_path=path)

    def execute(self, test, lit_config):
        if test.path_in_suite[:1] != ("unit",):
            return super().execute(test, lit_config)
        run = subprocess.run([test.file_path, "--gtest_brief=1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=test.config.environment, timeout=1200, errors="replace", text=True)
        code = lit.Test.PASS if run.returncode == 0 else lit.Test.FAIL
        return code, "" if code is lit.Test.PASS else run.stdout
