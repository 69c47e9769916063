"""A server of sentence embeddings: python server.py FOLDER, then python client.py. docs/serving.md says the rest."""
import os
import sys

from attnc import serve

if len(sys.argv) != 2:
    sys.exit("usage: server.py FOLDER   a folder as sentence-transformers writes it")
cpus = len(os.sched_getaffinity(0))
serve.run(serve.Settings(model=sys.argv[1], name="sentences", cpus=cpus), blocking=True)  # until Ctrl-C
