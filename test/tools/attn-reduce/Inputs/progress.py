"""python progress.py COMMAND...: runs it with standard error on a terminal, and looks for the line that each candidate has."""
import os
import pty
import re
import subprocess
import sys

terminal, theirs = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=theirs, text=True)
os.close(theirs)
text = b""
try:
    while part := os.read(terminal, 4096):
        text += part
except OSError:
    pass
result = child.communicate()[0]
lines = [line for line in text.decode().split("\r\x1b[K") if line]
start = lines.index("testing the model itself") + 1
numbers = [int(re.fullmatch(r"candidate (\d+): \d of 8 nodes, \d so far", line)[1]) for line in lines[start:]]
assert numbers == list(range(1, len(numbers) + 1)), lines
assert f"{len(numbers) + 1} candidates" in result, (result, lines)
