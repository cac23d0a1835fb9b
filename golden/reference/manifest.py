"""golden/MANIFEST.json: one line per data file under golden/ (guide: golden files).

Lines of files made elsewhere (plans, token cases) are kept as they were written; only their hash
and size are checked here. This folder's own products get their lines from the table below.
"""

import json
import os

from checkpoint import file_sha256

GOLDEN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOT_DATA = ("reference", "README.md", "MANIFEST.json")
MINI_COMMAND = "/usr/bin/python3 golden/reference/run.py mini MODEL golden/mini"
MINI_MODEL = "MODEL is made by: dsf synth --preset mini -o MODEL"


def own_line(name):
    """Producer, command and rule of comparison for the files of golden/mini, None for others."""
    if not name.startswith("mini/"):
        return None
    rule = ("injected mode tap by tap against recommended_limits_injected_mode of mini/noise_floor.json, "
            "choices equal; free-running against results.*.free_running, selections by the stored margins")
    if name.endswith("noise_floor.json"):
        rule = "holds the limits; refused when its binding does not match model, prompts or reference"
    return {"producer": "golden/reference", "command": MINI_COMMAND, "model": MINI_MODEL, "compared_by": rule}


def data_files():
    found = []
    for folder, folders, names in os.walk(GOLDEN):
        relative = os.path.relpath(folder, GOLDEN)
        folders[:] = sorted(d for d in folders if os.path.normpath(os.path.join(relative, d)) not in NOT_DATA)
        found += [os.path.normpath(os.path.join(relative, n)) for n in sorted(names)]
    return sorted(n for n in found if n not in NOT_DATA and not n.endswith(".part"))


def load(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)["files"]


def problems(lines):
    """Files without a line, lines without a file, wrong hashes."""
    present = data_files()
    for name in present:
        if name not in lines:
            yield f"{name}: no line in MANIFEST.json"
        elif lines[name]["sha256"] != file_sha256(os.path.join(GOLDEN, name)):
            yield f"{name}: sha256 differs from MANIFEST.json"
    yield from (f"{name}: in MANIFEST.json but not there" for name in lines if name not in present)


def refreshed(lines):
    """Own lines made anew, foreign lines kept; files without any line are left to `problems`."""
    result = {}
    for name in data_files():
        path, line = os.path.join(GOLDEN, name), own_line(name)
        if line:
            result[name] = {"sha256": file_sha256(path), "bytes": os.path.getsize(path), **line}
        elif name in lines:
            result[name] = lines[name]
    return result


def command(args):
    path = os.path.join(GOLDEN, "MANIFEST.json")
    lines = load(path)
    if not args.check:
        lines = refreshed(lines)
        with open(path + ".part", "w", encoding="ascii") as f:
            f.write(json.dumps({"schema": "dsf-golden-manifest-1", "files": lines}, indent=1) + "\n")
        os.replace(path + ".part", path)
    found = list(problems(lines))
    print("\n".join(found) if found else f"{len(lines)} files match")
    return 1 if found else 0
