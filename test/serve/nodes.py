"""A node that is lost under load."""
import os
import shutil
import tempfile
import time
import unittest

import fixtures
import numpy as np
from attnc import serve
from ray.cluster_utils import Cluster

os.environ["PYTHONPATH"] = os.pathsep.join([str(fixtures.ROOT / "test/serve"), os.environ.get("PYTHONPATH", "")])
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class Nodes(unittest.TestCase):
    def wait_for(self, count):
        for _ in range(300):
            if len(fixtures.replicas("node")) == count:
                return
            time.sleep(0.1)
        self.fail(f"{len(fixtures.replicas('node'))} replicas, not {count}")

    def test_a_node_is_lost(self):
        # A Unix socket's name has 107 bytes; the tests' own folders are longer.
        os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.addCleanup(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        self.addCleanup(cluster.shutdown)
        second = cluster.add_node(**NODE)
        cluster.connect()
        self.addCleanup(fixtures.stop_ray)
        fixtures.start_http()
        # One CPU a node: a replica on each.
        handle = serve.run(serve.Settings(model=__file__, name="node", backend="peers:fast", replicas=2))
        self.wait_for(2)
        results = fixtures.under_load(handle, lambda: cluster.remove_node(second, allow_graceful=False))
        fixtures.judge(self, results)
        self.wait_for(1)
        self.assertEqual(handle.infer.remote({"x": np.ones((1, 1), int)}).result(timeout_s=30)["y"].tolist(), [[1]])
        cluster.add_node(**NODE)
        self.wait_for(2)


if __name__ == "__main__":
    unittest.main()
