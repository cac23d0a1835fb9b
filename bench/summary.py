#!/usr/bin/env python3
"""The figures of one GPU run beside their targets, as a table in Markdown.

summary.py FILE...: the JSON lines of `dsf bench op|decode|prefill --backend cuda` and of ceiling_torch.py.
Prints to standard output; a figure that was refused or not measured is left out, and said so."""

import json
import sys


def read(paths):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines += [json.loads(text) for text in f if text.strip()]
    return lines


class Run:
    """Lines of one run, found by what they measure."""

    def __init__(self, lines):
        self.lines = lines

    def all(self, bench, **fields):
        return [x for x in self.lines if x.get("bench") == bench and "refused" not in x and
                all(x.get(key) == value for key, value in fields.items())]

    def op(self, op, rows, use=""):
        found = [x for x in self.all("op_device", op=op, rows=rows) if x["use"].startswith(use)]
        return found[-1] if found else None


def span(values, form):
    low, high = min(values), max(values)
    return form.format(low) if form.format(low) == form.format(high) else f"{form.format(low)} to {form.format(high)}"


def dense(run):
    ratios = [x["ratio"] for x in run.all("ceiling_torch", op="linear_g8", rows=8192)]
    rates = [x["tflops"] for x in run.all("op_device", op="linear_g8", rows=8192)]
    if rates:
        against = f", {span(ratios, '{:.2f}')} x cuBLAS bf16" if ratios else ""
        yield "dense fp8 products, 8,192 rows", f"{span(rates, '{:.0f}')} TFLOPS{against}", "1.0 x; aim 1.5 x"


def experts(run):
    for rows, target in ((8192, 450), (16384, 600)):
        found = [run.op(op, rows) for op in ("experts_up", "experts_down")]
        if all(found):
            rates = " / ".join(f"{x['tflops']:.0f}" for x in found)
            yield f"expert products up / down, {rows:,} tokens", f"{rates} TFLOPS useful", f"{target}; aim 900"


def attention(run):
    x = run.op("attn", 8192, "prefill, pool 131072")
    if x:
        yield "sparse attention prefill, pool of 131,072", f"{x['tflops']:.0f} TFLOPS", "400; aim 500"


def index(run):
    scores = run.op("index_scores", 256, "262144")
    if scores:
        yield "index scores, 262,144 keys, 256 rows", f"{scores['tflops']:.0f} TFLOPS", "600; aim 950"
    select = run.all("op_device", op="index_select", rows=256, use="262144 keys")
    if select:
        yield "the 512 best of them", f"{select[-1]['gb_s'] / 1e3:.2f} TB/s", "1.5 TB/s"


def boundary(run):
    for use in ("after attention", "after the experts"):
        x = run.op("hc_boundary", 8192, use)
        if x:
            share = f"{x['percent_of_copy_rate']:.0f}% of the copy rate"
            yield f"mHC boundary {use}, 8,192 rows", f"{x['gb_s']:.0f} GB/s, {share}", "60%"


def decode(run):
    for x in run.all("decode_device"):
        limit = f"{x['percent_of_physical']:.0f}% of the byte limit ({x['percent_at_copy_rate']:.0f}% at the copy rate)"
        whole = f"40 layers by kind {x['whole_model_us'] / 1e3:.2f} ms"
        yield (f"decode, batch {x['batch']}, {x['context']:,} tokens before",
               f"{x['layer_us']:.0f} us a layer, {x['nodes_a_layer']:.0f} nodes; {limit}; {whole}",
               "50%; aim 75%, 15 nodes" if x["batch"] == 1 else "")


def prefill(run):
    for x in run.all("prefill_device"):
        share = f"{x['percent_of_speed_of_light']:.0f}% of speed of light"
        yield (f"prefill, {x['chunk']:,} tokens at {x['context']:,}",
               f"{x['encoder_us_a_token']:.1f} us a token for the 20 encoder layers, {share}", "20%; aim 40%")


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: summary.py FILE...")
    lines = read(sys.argv[1:])
    run = Run(lines)
    print("| what | measured | target |\n| --- | --- | --- |")
    for part in (dense, experts, attention, index, boundary, decode, prefill):
        rows = list(part(run))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        if not rows:
            print(f"| {part.__name__} | not measured | |")
    refused = [x for x in lines if "refused" in x]
    for x in refused:
        print(f"| {x.get('op', x['bench'])} {x.get('use', '')} | refused: {x['refused'][:100]} | |")


if __name__ == "__main__":
    main()
