#!/usr/bin/env python3
"""Every model of test/e2e compiled for CUDA, through the interpreter, as check_model.py checks one.

    check_models.py [--tools=build/bin] [--jobs=2]     with build/test/gpu/lib on LD_LIBRARY_PATH
"""
import argparse
import concurrent.futures
import pathlib
import subprocess
import sys

E2E = pathlib.Path(__file__).resolve().parent.parent / "e2e"


def check(folder, tools):
    command = [sys.executable, E2E / "check_model.py", folder, f"--tools={tools}", "--target=cuda"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="build/bin")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    folders = sorted(f for f in (E2E / "models").iterdir() if (f / "model.onnx").exists())
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for folder, done in zip(folders, pool.map(lambda f: check(f, args.tools), folders)):
            failed += done.returncode != 0
            if done.returncode:
                print(f"{folder.name}:\n{done.stdout}", flush=True)
    print(f"{len(folders)} models, {failed} failed")
    return 1 if failed or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
