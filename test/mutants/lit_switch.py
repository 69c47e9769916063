"""lit's tests in a tree of mutants.py: they are told of the mutant that is on, and may note which ones they reach."""
import os
import pathlib
import time

import lit.Test
from attn_format import AttnFormat


class Switched(AttnFormat):
    def execute(self, test, lit_config):
        if "ATTN_MUTANT" in os.environ:
            test.config.environment["ATTN_MUTANT"] = os.environ["ATTN_MUTANT"]
        folder = os.environ.get("ATTN_REACHED_FOLDER")
        if not folder:
            return super().execute(test, lit_config)
        if (test.previous_elapsed or 0) > float(os.environ["ATTN_LONGEST"]):
            return lit.Test.UNSUPPORTED, "long"
        path = pathlib.Path(folder, *test.path_in_suite)
        path.parent.mkdir(parents=True, exist_ok=True)
        reached = path.with_name(path.name + ".reached")
        reached.write_bytes(bytes(int(os.environ["ATTN_MUTANTS"]) + 1))
        test.config.environment["ATTN_REACHED"] = str(reached)
        begin = time.monotonic()
        result = super().execute(test, lit_config)
        code = result[0] if isinstance(result, tuple) else result.code
        if code is lit.Test.PASS:
            path.with_name(path.name + ".passed").write_text(str(time.monotonic() - begin))
        return result
