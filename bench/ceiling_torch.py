#!/usr/bin/env python3
"""What the vendor's library reaches on this GPU at the shapes of a result file of `dsf bench op`.

ceiling_torch.py FILE: reads the op_device lines of FILE, runs torch.matmul in bf16 at the sizes of each
dense product (and at 8192 x 8192 x 8192), and appends lines of its own with the ratio, so that a
figure and its ceiling stand in one file. The product of n rows of width k with o columns; the
expert and grouped products are compared per useful FLOP with the dense shape of one expert or
group over all rows."""

import json
import statistics
import sys

import torch

WARM, ROUNDS, GRAPH_US = 3, 20, 2000.0
CACHE_BYTES = 4 * 60e6  # operands rotate until four times the L2 lies between two uses


def sizes_of(shape):
    """"n=1 k=5120 o=1280" as a dict."""
    return {name: int(value) for name, value in (part.split("=") for part in shape.split())}


def product_of(line):
    """(n, k, o) of the dense product that a line is compared with, or None."""
    s = sizes_of(line["shape"])
    op = line["op"]
    if op in ("linear_g8", "linear_gb", "linear_gf"):
        return s["n"], s["k"], s["o"]
    if op == "linear_group":
        return s["n"] * s["g"], s["k"], s["o"]
    if op == "experts_up":
        return s["n"] * s["k"], s["d"], 2 * s["i"]
    if op == "experts_down":
        return s["n"] * s["k"], s["i"], s["d"]
    return None


def operand_sets(n, k, o):
    count = max(1, min(64, round(CACHE_BYTES / (2.0 * (n * k + k * o + n * o)))))
    make = lambda *dims: torch.randn(*dims, device="cuda", dtype=torch.bfloat16)
    return [(make(n, k), make(o, k), torch.empty(n, o, device="cuda", dtype=torch.bfloat16))
            for _ in range(count)]


def capture(sets, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            x, w, y = sets[i % len(sets)]
            torch.matmul(x, w.t(), out=y)
    return graph


def time_graph(graph, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def measure(n, k, o):
    """Median and spread of microseconds a product, as a replayed graph of products."""
    sets = operand_sets(n, k, o)
    for x, w, y in sets:
        torch.matmul(x, w.t(), out=y)
    torch.cuda.synchronize()
    calls = len(sets)
    graph = capture(sets, calls)
    for _ in range(WARM):
        once = time_graph(graph, calls)
    wanted = min(256, -(-int(GRAPH_US / once) // len(sets)) * len(sets))
    if wanted > calls:
        calls, graph = wanted, capture(sets, wanted)
        time_graph(graph, calls)
    times = sorted(time_graph(graph, calls) for _ in range(ROUNDS))
    median = statistics.median(times)
    quarter = len(times) // 4
    return median, (times[-1 - quarter] - times[quarter]) / 2 / median


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: ceiling_torch.py FILE")
    with open(sys.argv[1], encoding="utf-8") as f:
        lines = [json.loads(text) for text in f if text.strip()]
    measured = {}
    out = []
    for line in [None] + [x for x in lines if x.get("bench") == "op_device" and "us" in x]:
        product = product_of(line) if line else (8192, 8192, 8192)
        if product is None:
            continue
        if product not in measured:
            measured[product] = measure(*product)
        median, spread = measured[product]
        n, k, o = product
        rate = 2e-6 * n * k * o / median
        own = {"bench": "ceiling_torch", "machine": torch.cuda.get_device_name(),
               "torch": torch.__version__, "n": n, "k": k, "o": o,
               "us": {"median": median, "spread": spread, "n": ROUNDS}, "tflops": rate}
        if line:
            own |= {"op": line["op"], "use": line["use"], "rows": line["rows"],
                    "variant": line["variant"], "dsf_tflops": line["tflops"],
                    "ratio": line["tflops"] / rate}
            print(f'{line["op"]:13} {line["use"]:20} {line["rows"]:6} {line["tflops"]:8.1f} '
                  f'cuBLAS bf16 {rate:8.1f} TFLOPS  ratio {own["ratio"]:.2f}')
        else:
            print(f"cuBLAS bf16 8192^3: {rate:.1f} TFLOPS")
        out.append(own)
    with open(sys.argv[1], "a", encoding="utf-8") as f:
        for own in out:
            f.write(json.dumps(own) + "\n")


if __name__ == "__main__":
    main()
