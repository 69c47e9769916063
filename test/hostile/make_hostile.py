#!/usr/bin/env python3
"""Writes model files that must be refused, and what must be said of each.

    make_hostile.py FOLDER

writes FOLDER/NAME.onnx (and what stands beside it) and FOLDER/expected.json:
name -> [exit status, text that the one error message contains]. A file that is
exactly at a limit expects status 0, or 2 where only an operator is missing.
Messages are written by hand from what is wrong with the file.
"""
import sys

import hostile_files  # noqa: F401  each module registers its cases
import hostile_sparse  # noqa: F401
import hostile_structure  # noqa: F401
import hostile_values  # noqa: F401
from hostile_pieces import write

if __name__ == "__main__":
    write(sys.argv[1])
