"""The mutants as they are written down: verify/mutants/table.tsv, the patches, results.tsv, README.md.

check           every patch is in the table and applies, every named check and case exists, README.md
                lists every mutant with its check, and its map covers the list of verification.md 18
record RESULTS  takes the results of a whole run (ci/mutants --record): writes results.tsv in the
                table's order and the list of README.md
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path("verify/mutants")
README = HERE / "README.md"
# The mutants that verification.md 18 asks for, in its order, in short.
ASKED = [
    "nibbles swapped", "e8m0 byte as a float", "scale grid transposed", "scale rows interleaved", "scale rounded down",
    "e4m3 read as fnuz", "scale dropped for one expert", "expert 0 only", "eps 1e-20 and 1e-6", "SwiGLU clamp missing",
    "SwiGLU clamp two-sided on the gate", "SwiGLU clamp on the shared expert only", "1e-20 in renormalisation missing",
    "softplus naive", "hash-route scale in bf16", "theta of compressed layers = base", "YaRN off",
    "YaRN on in window-only layers", "interleaved and half RoPE in the indexer", "partial rotary applied twice",
    "q-head norm added", "mHC residual matrix transposed", "one Sinkhorn round less", "lagged mix used un-lagged",
    "final collapse with the wrong sublayer's mix", "indexer key norm missing", "Hadamard on query only",
    "indexer ReLU missing", "candidate blocks ignored", "candidate blocks off by one block", "top-k tie rule reversed",
    "top-k of previous source group", "image router bias used for text", "window 127/129",
    "compressor group tail off by one", "group state not rolled back", "Engram history not rolled back",
    "hash multiplier of the other layer", "token map identity", "pad token hashed", "dead-token mask all dead",
    "dead-token mask none dead", "32-bit row offset", "one shard zero-filled", "tensor of another layer",
    "one TP rank skewed", "ranks sample apart", "stale CUDA-graph metadata", "restore without SWA rows",
    "prefix hit with wrong tail", "draft seed position -1", "stop token dropped", "UTF-8 cut",
    "chunk counted as token", "self-golden", "harness: empty dump", "harness: renamed tensor", "harness: NaN in both",
    "harness: dump mode on", "harness: floor file of another model", "harness: allow-list entry expired",
]


def rows_of(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def cells(line):
    return [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def readme_list():
    """name -> the cells of its line in the list; a name may be followed by a star."""
    text = README.read_text(encoding="utf-8")
    lines = [cells(x) for x in text[text.index("\n## The list"):].splitlines() if x.startswith("| ")]
    return {c[0].split(" ")[0]: c for c in lines[2:]}


def readme_map():
    text = README.read_text(encoding="utf-8")
    part = text[text.index("\n## The mutants that are asked for"):text.index("\n## The list")]
    return [cells(x) for x in part.splitlines() if x.startswith("| ")][2:]


def in_table(name, table):
    return name in table or any(re.fullmatch(name.replace("*", ".*"), t) for t in table)


def faults_of_check(name, check, sources):
    kind, _, rest = check.partition(" ")
    if kind == "unit":
        module, _, tests = rest.partition(" ")
        path = pathlib.Path(f"verify/unit/test_{module}.c")
        names = re.findall(r"^Test\(\w+, (\w+)", path.read_text(encoding="utf-8"), re.M) if path.exists() else []
        if not names or (tests and not any(n.startswith(tests.rstrip("*")) for n in names)):
            yield f"{name}: no test is meant by {check}"
    elif kind == "harness" and not re.search(rf"^{rest}\)", sources["harness"], re.M):
        yield f"{name}: the harness has no case {rest}"
    elif kind == "sees" and rest not in sources["table"]:
        yield f"{name}: sees {rest}, which is no mutant"
    elif kind not in ("unit", "harness", "sees", "graft", "free", "states", "checkops", "bench"):
        yield f"{name}: no check is called {kind}"


def check():
    table = {r[0]: r for r in rows_of(HERE / "table.tsv")}
    sources = {"harness": (HERE / "harness").read_text(encoding="utf-8"), "table": table}
    faults = [f"{p}: in no row of table.tsv" for p in sorted(HERE.glob("*.patch"))
              if p.name not in {r[1] for r in table.values()}]
    for name, row in table.items():
        if len(row) < 4 or not row[3]:
            faults.append(f"{name}: table.tsv wants name, patch, check and words")
            continue
        faults += faults_of_check(name, row[2], sources)
        run = subprocess.run(["git", "apply", "--check", "--whitespace=nowarn", str(HERE / row[1])],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            faults.append(f"{name}: does not apply: {run.stderr.strip().splitlines()[0]}")
    listed = readme_list()
    faults += [f"{n}: not in README.md" for n in table if n not in listed]
    faults += [f"{n}: in README.md, not in table.tsv" for n in listed if n not in table]
    faults += [f"{n}: README.md says {listed[n][2]}, table.tsv {table[n][2]}" for n in table
               if n in listed and listed[n][2].replace("\\", "") != table[n][2]]
    asked = readme_map()
    if [a[0] for a in asked] != ASKED:
        faults.append("README.md: the map of asked mutants lacks a line or has one of its own")
    for item, names in asked:
        known = re.findall(r"`([^`]+)`", names)
        if not known and not names.startswith("n/a: "):
            faults.append(f"README.md: {item}: neither a mutant nor n/a with a reason")
        faults += [f"README.md: {item}: {n} is no mutant" for n in known if not in_table(n, table)]
    for fault in faults:
        print(fault)
    covered = sum(not n.startswith("n/a") for _, n in asked)
    print(f"= {len(table)} mutants apply; {covered} of {len(ASKED)} asked for are here, the rest n/a with a reason")
    return 1 if faults else 0


def record(results):
    table = rows_of(HERE / "table.tsv")
    last = {r[0]: r for r in rows_of(pathlib.Path(results))}
    absent = [r[0] for r in table if r[0] not in last]
    if absent:
        print(f"not recorded: {len(absent)} mutants without a result; run them all")
        return 1
    trees = sorted({last[r[0]][6] for r in table})
    if len(trees) > 1:
        print(f"not recorded: results of {len(trees)} trees ({', '.join(trees)}); run them all on one")
        return 1
    lines = ["# Written by ci/mutants --record: mutant, check, verdict, words, others that see it, seconds, commit."]
    lines += ["\t".join(last[r[0]]) for r in table]
    (HERE / "results.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_list(table, last)
    return 0


def place_of(words):
    """Where the check saw it: the tap, or the test."""
    tap = re.match(r"first divergence: (?:layers/\d+/|dspark/stages/\d+/)?([^ :]+)", words)
    test = re.search(r"\[FAIL\] (\w+)::(\w+)", words)
    return tap[1] if tap else test[2] if test else words[:60]


def write_list(table, last):
    old, text = readme_list(), README.read_text(encoding="utf-8")
    head = "| mutant | mistake | check that caught it | where | others that see it |\n| --- | --- | --- | --- | --- |\n"
    lines = []
    for row in table:
        result, known = last[row[0]], old.get(row[0], [row[0], "?"])
        others = ", ".join(x for x in (result[4] if result[4] != "-" else "", row[4] if len(row) > 4 else "")
                           if x and x != "none")
        where = place_of(result[3]) if result[2] == "killed" else result[2]
        line = [known[0], known[1], row[2].replace("*", "\\*"), where, others or "none"]
        lines.append("| " + " | ".join(c.replace("|", "\\|").replace("\\\\|", "\\|") for c in line) + " |")
    begin = text.index("\n| mutant |", text.index("\n## The list")) + 1
    README.write_text(text[:begin] + head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        sys.exit(check())
    if len(sys.argv) == 3 and sys.argv[1] == "record":
        sys.exit(record(sys.argv[2]))
    sys.exit(__doc__)
