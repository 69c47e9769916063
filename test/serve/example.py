"""Runs examples/serve: the server, then the client once it answers."""
import os
import signal
import subprocess
import sys
import time

import fixtures

folder = fixtures.scratch()
environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
examples = fixtures.ROOT / "examples/serve"
server = subprocess.Popen([sys.executable, examples / "server.py", fixtures.sentences(folder)], env=environment,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
try:
    for _ in range(120):
        try:
            if fixtures.http("GET", "/v2/health/ready")[0] == 200:
                break
        except OSError:
            pass
        time.sleep(0.5)
    subprocess.run([sys.executable, examples / "client.py", "the rain", "the rivers"], check=True, timeout=60)
finally:
    # Ray's own processes end with the one that started them.
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
