"""Asks the server of server.py over HTTP, as any client of KServe or Triton would."""
import json
import sys
import urllib.request

URL = "http://127.0.0.1:8000/v2/models/sentences/infer"


def embed(texts):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    with urllib.request.urlopen(URL, json.dumps({"inputs": [tensor]}).encode()) as answer:
        output = json.load(answer)["outputs"][0]
    rows, width = output["shape"]
    return [output["data"][n * width : (n + 1) * width] for n in range(rows)]


first, second = embed(sys.argv[1:3] if len(sys.argv) > 2 else ["bread", "a loaf"])
print("cosine similarity", round(sum(a * b for a, b in zip(first, second)), 3))
