"""FILE LEAST MOST ...: the relative errors that attn-run --compare wrote into FILE lie in [LEAST, MOST]."""
import json
import sys

for file, least, most in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    errors = [output["relative_error"] for output in json.load(open(file))["compared"]]
    assert errors and all(error <= float(most) for error in errors), (file, errors)
    assert max(errors) >= float(least), (file, errors)
