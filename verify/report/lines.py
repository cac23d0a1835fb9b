"""Lines as `dsf soak` and `dsf bench` write them, made up from formulas, so that a test knows what a page must say."""

import json

ABOUT = {"commit": "1a2b3c4", "machine": "Test processor", "processors": 2, "threads": 2, "load": 0.5, "conditions": "made up"}
# name, kind, bytes a row of the chunk, bytes a token, bytes, formula
BUDGET = (("pass: values", "host", 6000, 0, 0, "rows x row bytes"), ("caches", "host", 0, 900, 0, "context x 890"),
          ("kernel scratch", "host", 0, 0, 50000, "2 threads x 25000"))
LADDER = (127, 128, 129, 256, 1024, 8192, 65536, 1048576)
MARGIN = 64 << 20


def planned(length, chunk):
    return sum(a * min(chunk, length) + b * length + c for _, _, a, b, c, _ in BUDGET)


def rung(length, chunk, over=0):
    plan = planned(length, chunk)
    measured = int(plan * 0.995) + over
    curve, depth = [], 0
    while depth < length:
        tokens = min(chunk, length - depth) if length <= 8 * chunk else length // 8
        curve.append({"depth": depth, "tokens": tokens, "seconds": tokens * (1e-4 + depth * 1e-10)})
        depth += tokens
    taken = {name: a * min(chunk, length) + b * length for name, _, a, b, c, _ in BUDGET if not c}
    arenas = [{"name": name, "planned": n, "high_water": n} for name, n in taken.items()]
    largest = [{"name": "experts: rows", "bytes": 3 * chunk * 1000, "formula": "chunk x 6 x 500"},
               {"name": "index: scores", "bytes": over or chunk * 16, "formula": "chunk x context x 4" if over else "tile x 4",
                "chunk_times_length": over > 0}]
    return {"soak": "rung", "length": length, "chunk": chunk, "planned_bytes": plan, "measured_bytes": measured, "high_water_bytes": measured + 4096,
            "beside_plan_bytes": 4096,
            "margin_bytes": (8 << 30) - measured, "margin_percent": 100 - 100 * measured / (8 << 30), "seconds": sum(c["seconds"] for c in curve),
            "tokens_per_s": length / sum(c["seconds"] for c in curve), "curve": curve, "arenas": arenas, "largest": largest,
            "hash": f"{length:016x}", "same": True}


def samples(cycles, leak):
    found, t = [], 0
    for cycle in range(cycles):
        for phase in ("open", "prefill", "decode", "rewind", "cancel", "resume", "closed"):
            t += 40
            live = 3_000_000 + (900_000 if phase in ("prefill", "decode") else 0) + leak * cycle
            found.append({"soak": "sample", "t_ms": t, "stage": "cycles", "length": 2048, "chunk": 256, "cycle": cycle, "phase": phase,
                          "anon_bytes": live + 2_000_000, "file_bytes": 5_000_000, "page_cache_bytes": 1 << 30, "live_bytes": live,
                          "pinned_bytes": None, "device_free_bytes": None, "device_used_bytes": None, "fds": 12})
    return found


def soak(leak=0, over=0, cycles=20, chunks=(256, 1024)):
    """A run; leak: bytes a cycle, over: bytes beyond the plan at the last rung of the last chunk."""
    start = {"soak": "start", **ABOUT, "model": "mini", "context": 1048576, "chunks": list(chunks), "ladder": list(LADDER), "cycles": cycles,
             "prefill": "cone", "backend": "cpu", "planned_bytes": planned(1048576, chunks[-1]),
             "budget": [{"name": n, "kind": k, "bytes": a * chunks[-1] + b * 1048576 + c, "formula": f, "phase": "decode"} for n, k, a, b, c, f in BUDGET],
             "limits": {"margin_bytes": MARGIN, "margin_percent": 3, "residual_percent": 1, "slope_bytes": 1048576}}
    rungs = [rung(n, c) for c in chunks for n in LADDER]
    if over:
        rungs[-1] = rung(LADDER[-1], chunks[-1], over)
    slopes = [{"soak": "slope", "what": "live_bytes", "cycles": cycles, "per_cycle": leak, "low": leak, "high": leak, "limit": 0, "passed": leak == 0},
              {"soak": "slope", "what": "anon_bytes", "cycles": cycles, "per_cycle": leak + 12.5, "low": leak - 40, "high": leak + 70, "limit": 1048576,
               "passed": True}]
    checks = [{"name": "plan", "passed": not over, "measured": rungs[-1]["measured_bytes"], "limit": rungs[-1]["planned_bytes"],
               "words": "measured at most planned"},
              {"name": "slope live_bytes", "passed": leak == 0, "measured": leak, "limit": 0, "words": "bytes a cycle"},
              {"name": "outputs", "passed": True, "measured": 0, "limit": 0, "words": "hashes that differ"}]
    culprit = "index: scores" if over else "live_bytes: 65536 bytes a cycle after rewind" if leak else ""
    verdict = {"soak": "verdict", "passed": not (over or leak), "checks": checks, "culprit": culprit}
    fit = {"soak": "fit", "a": 250.0, "b": 895.5, "c": None, "d": 5970.0, "residual_percent": 0.4, "without": "kernel scratch",
           "points": len(rungs)}
    return [start, *rungs, *samples(cycles, leak), fit, *slopes, verdict]


def text(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


def decode(context, tokens_per_s=8.0, percent=80.0, kernels=(("experts_up", 60.0), ("linear_g8", 39.5)), **more):
    """A decode line of a host whose kernels take these percents of the step."""
    ns = 1e9 / tokens_per_s
    step = [{"op": op, "variant": "avx512", "runs": 4, "ns_per_token": ns * share / 100, "percent_of_step": share, "percent_of_limit": 70.0}
            for op, share in kernels]
    return {"bench": "decode", **ABOUT, "model": "full4", "context": context, "chunk": 256, "prefill": "cone", "ids_hash": "abc", "median_ns": ns,
            "mean_ns": ns, "spread": 0.01, "tokens_per_s": tokens_per_s, "limit": "memory", "percent": percent, "step": step, "outside_steps_percent": 0.5,
            **more}


def op(name, shape, ns, spread=0.01, **more):
    return {"bench": "op", **ABOUT, "op": name, "use": "", "variant": "avx512", "shape": shape, "median_ns": ns, "spread": spread, "checked_worst": 0, **more}


GPU = {"commit": "9f8e7d6", "machine": "NVIDIA H200", "processors": 16, "threads": 16, "load": 1.0,
       "device": {"driver": "580.1", "sm_mhz": 1980, "memory_mhz": 3201}, "weights": "synthetic, seed 1", "method": "by kind of layer"}


def gpu_prefill(context, us, chunk=8192, light=10.0):
    """A chunk at this depth that takes us microseconds a token of the first half."""
    total = us * chunk
    return {"bench": "prefill_device", **GPU, "layer_list": "0,1,2,3,8", "chunk": chunk, "context": context, "encoder_missing_layers": 0,
            "encoder_us_a_token": us, "percent_of_speed_of_light": 100 * light / us, "device_us": {"median": total, "spread": 0.002, "n": 5},
            "operations": [{"op": "experts_up", "variant": "sm90fp8", "us": total * 0.88, "percent": 88.0}]}


def gpu_decode(batch, us, context=4096):
    """A step of this batch; the whole model takes four times as long."""
    return {"bench": "decode_device", **GPU, "layer_list": "0,1,20", "batch": batch, "context": context, "whole_model_missing_layers": 0,
            "whole_model_us": 4 * us, "percent_of_physical": 40.0, "percent_at_copy_rate": 50.0, "graph_us": {"median": us, "spread": 0.001, "n": 20},
            "operations": [{"op": "experts_up", "variant": "sm90fp8", "us": us * 0.6, "percent": 60.0}, {"op": "attn", "variant": "sm90", "us": us * 0.41, "percent": 41.0}]}


def alternated(what, change, low, high, verdict, parts=(), **more):
    """A line of two builds in alternation; parts: (operation, percent of change, its verdict)."""
    def side(ns):
        return {"program": "dsf", "output_hash": "ab", "ns": {"median": ns, "spread": 0.01, "n": 30}}
    return {"bench": "against", **ABOUT, "what": what, "this": side(1e6 * (1 + change / 100)), "other": side(1e6), "change_percent": change,
            "interval": [low, high], "verdict": verdict, "same_output": True,
            "parts": [{"op": op, "this_ns": 1e5 * (1 + c / 100), "other_ns": 1e5, "change_percent": c, "interval": [c - 1, c + 1], "verdict": v}
                      for op, c, v in parts], **more}
