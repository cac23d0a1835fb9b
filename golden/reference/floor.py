"""Noise floor: what the definition leaves open, measured (verification.md section 11).

Every variant changes only how sums between two specified roundings are done. Its distance from the
golden dump, free-running and from exact layer inputs, is the tolerance of a correct engine.
"""

import hashlib
import json
import math
import os
import re

import numpy as np

import draft
from checkpoint import reference_digest
from compare import FIELDS, compare, execution_order
from dump import BACKEND, LAYER_TAPS, OTHER_TAPS, PRODUCER, Golden, ascii_json
from formats import bf16
from model import Taps, injected, prefill
from numerics import Arith

VARIANTS = {
    "float32_forward": ("float32 between the roundings, sums in increasing index", dict(order="forward")),
    "float32_reversed": ("float32, sums in reversed order inside each block", dict(order="reversed")),
    **{f"float32_permuted_{seed}": (f"float32, sums in fixed shuffled order number {seed}",
                                    dict(order="permuted", seed=seed)) for seed in range(1, 7)},
    "rope_table_float32": ("float64 between the roundings, cos and sin by the float32 library functions",
                           dict(precision="f64", rope="f32")),
}
# Taps of the floor tables; inputs of a layer are exact in one mode and repeat `out` in the other.
NOT_TABLED = ("in", "premix", "embed", "dspark/in", "dspark/premix")
MODES = {
    "free_running": "from token ids",
    "per_layer_from_exact_input": "every layer and draft stage gets `in` and `premix` from the dump; shared "
                                  "KV, index keys, pool and lists are the stored ones for layers that "
                                  "read another layer's",
}
FIELD_TEXT = {
    "rel_l2_max": "largest over layers of ||a-b||/||a||, whole tap",
    "row_median_max": "largest over layers of the median over rows of the row-wise relative L2",
    "row_max": "largest row-wise relative L2",
    "max_abs": "largest absolute difference",
    "changed_fraction_max": "largest fraction of elements that differ",
    "flips": "rows whose selected set differs, summed over layers",
    "by_layer": "[relative L2, largest row] of each backbone layer, null where the layer has no such tap",
    "growth": "for each layer l: relative L2 at the outputs of layers l, l+1, ... over the relative L2 of a "
              "small error (1e-3 relative, rounded to bf16) put into the stream that enters layer l",
}
SAFETY = 4  # as in the limits that come with the publisher's data
MOST_GROWTH = 1.3  # between two measurements of a floor; more needs a yes (verification.md 11)
PERTURBATION = 1e-3
LEAST = {"bf16": (2e-4, 1e-4), "f32": (2e-6, 1e-6)}  # (rel L2, row median) below which no limit goes


def run(m, golden, mode, oneshot=False):
    """(taps, report) of one pass over the prompt of a dump."""
    taps, inputs = Taps(), golden.inputs()
    anchor = int(golden.file["dspark/draft_ids"].attrs["anchor_id"])
    if mode == "free_running":
        prefill(m, inputs, taps, oneshot)
        draft.run(m, taps["dspark/tap"], anchor, taps)
        return taps, compare(golden, taps, m.cfg, np.arange(len(inputs)))
    injected(m, inputs, golden, taps, oneshot)
    draft.run(m, taps["dspark/tap"], anchor, taps, golden)
    return taps, compare(golden, taps, m.cfg, golden.positions)


def significant(x, digits=3):
    return 0 if x == 0 else float(f"{x:.{digits}g}")


def tabled(report):
    names = sorted((n for n in report.taps if n not in NOT_TABLED), key=execution_order)
    return {name: {field: significant(report.taps[name][field]) for field in FIELDS} for name in names}


def by_layer(report, n_layers):
    """Carried floors differ from layer to layer by orders of magnitude; one number a tap hides that."""
    names = sorted((n for n in report.layers if n not in NOT_TABLED), key=execution_order)
    return {name: [[significant(v) for v in report.layers[name][layer]] if layer in report.layers[name] else None
                   for layer in range(n_layers)] for name in names}


def flips(report):
    def total(counts, *names):
        return sum(counts.get(name, 0) for name in names)

    experts, topk = ("ffn/expert_ids", "dspark/ffn/expert_ids"), ("attn/topk",)
    return {"expert_rows": total(report.rows, *experts), "expert_flips": total(report.flips, *experts),
            "topk_rows": total(report.rows, *topk), "topk_flips": total(report.flips, *topk),
            "pool_flips": total(report.flips, "attn/pool")}


def log_softmax(x):
    x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl_rows(a, b):
    p, q = log_softmax(a), log_softmax(b)
    return np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0)


def logit_stats(a, b):
    kl = kl_rows(a, b)
    return {"kl_mean": significant(kl.mean()), "kl_median": significant(np.median(kl)),
            "kl_max": significant(kl.max()), "top1_agree": significant(np.mean(a.argmax(1) == b.argmax(1))),
            "max_abs": significant(np.abs(a - b).max())}


def draft_stats(golden, taps, report):
    kl = kl_rows(golden.raw("dspark/draft_logits"), taps["dspark/draft_logits"])
    rel = {key: significant(report.taps[f"dspark/{name}"]["rel_l2_max"]) for key, name in (
        ("logits_rel_l2", "draft_logits"), ("base_rel_l2", "base_logits"), ("main_rel_l2", "main"),
        ("ring_rel_l2", "ring_kv"))}
    return {"ids_equal": report.flips["dspark/draft_ids"] == 0, "kl_max": significant(kl.max()),
            "confidence_max_abs": significant(report.taps["dspark/confidence"]["max_abs"]), **rel}


def measure(m, path):
    """All variants of one dump."""
    result = {}
    for variant, (_, options) in VARIANTS.items():
        m.set_arith(Arith(**{"precision": "f32", **options}))
        result[variant] = {}
        for mode in MODES:
            golden = Golden(path, m.ar.dtype)
            taps, report = run(m, golden, mode)
            result[variant][mode] = {
                "by_tap": tabled(report), "by_layer": by_layer(report, m.cfg.n_layers), "flips": flips(report),
                "logits": logit_stats(golden.raw("logits"), taps["logits"]),
                "draft": draft_stats(golden, taps, report)}
    m.set_arith(Arith())
    return result


def growth(m, golden):
    """Row l: how a small error in the stream that enters layer l has grown at each output from there on."""
    inputs, rows = golden.inputs(), []
    outs = [f"layers/{layer:02}/out" for layer in range(m.cfg.n_layers)]

    def perturbed(at, taps):
        noise, put = np.random.default_rng(at), {}

        def enter(layer, x):
            if layer != at:
                return x
            wrong = bf16(x * (1 + PERTURBATION * noise.standard_normal(x.shape)))
            put["rel"] = np.linalg.norm(wrong - x) / np.linalg.norm(x)
            return wrong
        prefill(m, inputs, taps, enter=enter)
        return put["rel"]

    for at in range(m.cfg.n_layers):
        taps = Taps()
        size = perturbed(at, taps)
        truth = [golden.tap(name) for name in outs[at:]]
        rows.append([significant(np.linalg.norm(taps[name] - a) / np.linalg.norm(a) / size)
                     for name, a in zip(outs[at:], truth)])
    return rows


def round_up(x):
    """One significant digit, upwards."""
    power = 10.0 ** math.floor(math.log10(x))
    return float(f"{math.ceil(x / power - 1e-9) * power:.1g}")


def tap_dtype(name):
    """source_dtype of a reported tap name."""
    return OTHER_TAPS.get(name) or LAYER_TAPS[name.removeprefix("dspark/")]


def limits(results):
    """Limits of the injected mode from all runs of that mode in which no selection flipped."""
    measured = {}
    for variants in results.values():
        for modes in variants.values():
            one = modes["per_layer_from_exact_input"]
            if any(one["flips"][key] for key in ("expert_flips", "topk_flips", "pool_flips")):
                continue
            for name, fields in one["by_tap"].items():
                worst = measured.setdefault(name, {"rel_l2": 0, "row_median": 0, "row_max": 0})
                for key in worst:
                    worst[key] = max(worst[key], fields[key if key == "row_max" else key + "_max"])
    by_tap = {}
    for name in sorted(measured, key=execution_order):
        least = LEAST["f32" if tap_dtype(name) == "f32" else "bf16"]
        rel, median = (round_up(max(SAFETY * measured[name][key], low))
                       for key, low in zip(("rel_l2", "row_median"), least))
        by_tap[name] = {"measured": measured[name], "limit_rel_l2": rel, "limit_row_median": median}
    return by_tap


def prompts_digest(paths):
    """sha256 over ids, image mask and embedded rows of image prompts, in the order of the names."""
    digest = hashlib.sha256()
    for path in paths:
        inputs = Golden(path).inputs()
        digest.update(inputs.token_ids.astype("<i4").tobytes())
        if inputs.has_images:
            digest.update(inputs.image_mask.tobytes())
            digest.update(np.asarray(inputs.embed, "<f4").tobytes())
    return digest.hexdigest()


def build(m, folder):
    """Content of noise_floor.json for all dump-*.h5 of a folder."""
    names = sorted(n for n in os.listdir(folder) if n.startswith("dump-") and n.endswith(".h5"))
    paths = [os.path.join(folder, n) for n in names]
    if not paths:
        raise FileNotFoundError(f"{folder}: no dump-*.h5")
    sets = {f"{m.cfg.name}/{n[5:-3]}": path for n, path in zip(names, paths)}
    results = {name: measure(m, path) for name, path in sets.items()}
    return {
        "about": "Numerical noise of the reference computation: the same model and prompts with float32 "
                 "in place of float64 between the specified roundings, in several summation orders.",
        "binding": {
            "model": m.cfg.name, "model_digest": m.ckpt.digest(), "prompts": [n[5:-3] for n in names],
            "prompts_digest": prompts_digest(paths), "reference_digest": reference_digest(),
            "config_sha256": hashlib.sha256(ascii_json(m.cfg.text).encode()).hexdigest(),
            "token_class": "prefill", "backend": BACKEND, "producer": PRODUCER},
        "modes": MODES, "fields": FIELD_TEXT,
        "variants": {name: text for name, (text, _) in VARIANTS.items()},
        "recommended_limits_injected_mode": {
            "about": f"{SAFETY} x the largest noise seen in any variant or prompt without a flipped "
                     "selection (least: 2e-4 / 1e-4 for bf16 taps, 2e-6 / 1e-6 for float32 taps), "
                     "rounded up to one digit.",
            "by_tap": limits(results)},
        "growth": {name: growth(m, Golden(path)) for name, path in sets.items()},
        "results": results,
    }


def largest(floor):
    """{(mode, tap, field): largest over prompts and variants}: what one floor allows."""
    found = {}
    for variants in floor["results"].values():
        for modes in variants.values():
            for mode, one in modes.items():
                for name, fields in one["by_tap"].items():
                    for field in ("rel_l2_max", "row_max"):
                        key = mode, name, field
                        found[key] = max(found.get(key, 0), fields[field])
    return found


def grown(old, new):
    """Lines for all that grew by more than MOST_GROWTH: a fault of the reference would loosen every gate."""
    before, after = largest(old), largest(new)
    lines = []
    for key in sorted(after):
        was = before.get(key)
        if was is None or after[key] <= MOST_GROWTH * was:
            continue
        factor = f"{after[key] / was:.3g} times" if was else "from exact"
        lines.append(f"{key[1]}: {key[2]} ({key[0]}) {was:.3g} -> {after[key]:.3g}, {factor}")
    return lines


class Grown(Exception):
    """The floor grew and no one said yes."""


def check_growth(path, new):
    """Raises Grown where a floor stands at `path` and the new one is above it."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        lines = grown(json.load(f), new)
    if lines:
        raise Grown("\n".join([f"{path}: the floor grew by more than {MOST_GROWTH} in {len(lines)} figures; "
                               "the old one stays. --accept-growth takes the new one.", *lines]))


def compact(value):
    """Indented JSON with the innermost records and lists on one line each."""
    text = json.dumps(value, indent=1)

    def flat(match):
        return re.sub(r"\s*\n\s*", " ", match[0])

    text = re.sub(r"\[[^][{}]*\]", flat, text)
    text = re.sub(r"\[[^{}\"]*\](?=,?\n)", flat, text)
    return re.sub(r"\{[^{}]*\}", flat, text) + "\n"


def write(m, folder, path, accept_growth=False):
    new = build(m, folder)
    if not accept_growth:
        check_growth(path, new)
    save(new, path)


def save(new, path):
    text = compact(new)
    with open(path + ".part", "w", encoding="ascii") as f:
        f.write(text)
    os.replace(path + ".part", path)


def load_limits(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)["recommended_limits_injected_mode"]["by_tap"]
