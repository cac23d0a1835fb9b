"""Golden texts of `dsf plan`: golden/plans/*.txt, each what its command prints, and its exit status.

usage: plans.py DSF [--write]
Without --write: every text again, compared byte for byte; prints the first line that differs, exit 1.
"""

import hashlib
import json
import os
import subprocess
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
GPU = ["--backend", "cuda", "--ctx", "1048576", "--memory", "139GiB", "--reserve", "5GiB"]
RELEASED = ["--preset", "full", *GPU, "--chunk", "8192"]
LAYERS = ["--synthetic", "0-17", "--engram-vocab", "2700000", *GPU]
CPU = ["--backend", "ref", "--ctx", "1048576", "--chunk", "256", "--threads", "8", "--memory", "512GiB"]
MINI = ["--preset", "mini", "--backend", "ref", "--ctx", "256", "--chunk", "16", "--threads", "1", "--memory", "16GiB"]
PLANS = {
    "mini": [*MINI, "--steps"],
    **{f"memory-released-{n}gpu": [*RELEASED, "--ranks", str(n)] for n in (1, 2, 4, 8)},
    **{f"memory-layers-0-17-{n}gpu": [*LAYERS, "--chunk", "8192", "--ranks", str(n)] for n in (1, 2, 4, 8)},
    "memory-layers-0-17-1gpu-chunk16384": [*LAYERS, "--chunk", "16384"],
    "memory-released-cpu": ["--preset", "full", *CPU],
    "memory-explain-kernel-scratch": [*LAYERS, "--chunk", "16384", "--explain", "pass: kernel scratch"],
}
RULE = "ci/check-plan: byte for byte (a plan changes only when what runs, or what it takes, changes)"
EXIT = {"mini": False}  # its last line is a step's: the unit test plan compares the steps to the end


def text_of(dsf, name, arguments):
    done = subprocess.run([dsf, "plan", *arguments], stdout=subprocess.PIPE, check=False)
    return done.stdout + (f"exit {done.returncode}\n".encode() if EXIT.get(name, True) else b"")


def differs(path, text):
    with open(path, "rb") as f:
        want = f.read()
    if want == text:
        return False
    for i, (a, b) in enumerate(zip(want.splitlines() + [b""], text.splitlines() + [b""])):
        if a != b:
            print(f"{path}:{i + 1}: golden: {a.decode()}\n{path}:{i + 1}: now:    {b.decode()}")
            break
    return True


def write(name, arguments, text):
    with open(os.path.join(GOLDEN, "plans", name + ".txt"), "wb") as f:
        f.write(text)
    quoted = " ".join(f"'{a}'" if " " in a else a for a in arguments)
    return {
        "sha256": hashlib.sha256(text).hexdigest(),
        "bytes": len(text),
        "producer": "dsf",
        "command": f"dsf plan {quoted}" + (" (then its exit status)" if EXIT.get(name, True) else ""),
        "model": "sizes alone; no checkpoint",
        "compared_by": RULE,
    }


def main():
    dsf, code = sys.argv[1], 0
    manifest = os.path.join(GOLDEN, "MANIFEST.json")
    with open(manifest, encoding="utf-8") as f:
        lines = json.load(f)
    for name, arguments in PLANS.items():
        text = text_of(dsf, name, arguments)
        if "--write" in sys.argv[2:]:
            lines["files"][f"plans/{name}.txt"] = write(name, arguments, text)
        elif differs(os.path.join(GOLDEN, "plans", name + ".txt"), text):
            code = 1
    if "--write" in sys.argv[2:]:
        lines["files"] = dict(sorted(lines["files"].items()))
        with open(manifest, "w", encoding="utf-8") as f:
            f.write(json.dumps(lines, indent=1) + "\n")
    print(f"= {len(PLANS)} memory plans")
    return code


if __name__ == "__main__":
    sys.exit(main())
