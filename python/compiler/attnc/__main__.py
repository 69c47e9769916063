"""python -m attnc: the command attnc, for when the folder of commands is not in PATH."""

import sys

from ._console import attnc

sys.exit(attnc())
