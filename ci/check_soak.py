"""check_soak.py FILE [passed|stopped]: the lines of one `dsf soak` are whole, agree with each other, and say so.

What the program concluded is computed again here from its own samples: the verdict must follow from them.
"""

import json
import sys

KEYS = {
    "start": "model context chunks ladder cycles prefill backend budget planned_bytes limits commit machine threads",
    "sample": "t_ms stage length chunk cycle phase anon_bytes file_bytes page_cache_bytes live_bytes pinned_bytes "
              "device_free_bytes device_used_bytes fds",
    "rung": "length chunk planned_bytes measured_bytes high_water_bytes margin_bytes margin_percent seconds "
            "tokens_per_s curve arenas largest hash same",
    "fit": "a b c residual_percent points",
    "slope": "what cycles per_cycle low high limit passed",
    "verdict": "passed checks culprit",
}


def faults_of(lines, answer):
    kinds = {k: [x for x in lines if x["soak"] == k] for k in KEYS}
    for i, line in enumerate(lines):
        if next(iter(line)) != "soak" or line["soak"] not in KEYS:
            yield f"line {i + 1}: no line of a soak"
            continue
        for key in KEYS[line["soak"]].split():
            if key not in line:
                yield f"line {i + 1} ({line['soak']}): no {key}"
    if lines[0]["soak"] != "start" or lines[-1]["soak"] != "verdict":
        yield "it does not begin with start and end with verdict"
        return
    start, verdict = lines[0], lines[-1]
    if verdict["passed"] != (answer == "passed"):
        yield f"the verdict says passed: {verdict['passed']}"
    if sum(x["bytes"] for x in start["budget"] if x["kind"] in ("host", "pinned")) != start["planned_bytes"] \
            and start["backend"] == "cpu":
        yield "the lines of the budget do not add up to planned_bytes"
    hashes = {}
    for r in kinds["rung"]:
        name = f"length {r['length']}, chunk {r['chunk']}"
        if not 0.99 * r["planned_bytes"] <= r["measured_bytes"] <= r["planned_bytes"]:
            yield f"{name}: {r['measured_bytes']} bytes measured, {r['planned_bytes']} planned"
        if sum(p["tokens"] for p in r["curve"]) != r["length"]:
            yield f"{name}: the curve does not add up to the length"
        for a in r["arenas"]:
            if a["high_water"] > a["planned"] or a["name"] != "pass: inputs" and a["high_water"] < 0.99 * a["planned"]:
                yield f"{name}: arena {a['name']}: {a['high_water']} of {a['planned']}"
        if hashes.setdefault(r["length"], r["hash"]) != r["hash"]:
            yield f"{name}: another hash than at another chunk"
    if answer != "passed":
        return
    if len(kinds["rung"]) != len(start["ladder"]) * len(start["chunks"]):
        yield f"{len(kinds['rung'])} rungs of {len(start['ladder'])} lengths and {len(start['chunks'])} chunks"
    if kinds["fit"] and kinds["fit"][0]["residual_percent"] >= 1:
        yield f"the fit leaves {kinds['fit'][0]['residual_percent']} %"
    closed = [x["live_bytes"] for x in kinds["sample"] if x["stage"] == "cycles" and x["phase"] == "closed"]
    if len(closed) != (start["cycles"] + 3 if start["cycles"] else 0) or len(set(closed[3:])) > 1:
        yield f"live bytes after {len(closed)} cycles: {sorted(set(closed))}"


def main():
    path, answer = sys.argv[1], (sys.argv + ["passed"])[2]
    lines = [json.loads(x) for x in open(path, encoding="utf-8")]
    faults = list(faults_of(lines, answer))
    print("\n".join(faults[:20]) or f"{path}: {len(lines)} lines are good")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
