"""The maps that ship: what the engines' dumpers write, made from golden values, imports to the golden dump."""

import json
import os
import unittest

import h5py
import numpy as np

import foreign
from case import MAPS, TORCH, Case, golden
from foreign import Bits, bf16


def script_of(document):
    """The dump script that a reader copies out of IMPORT.md."""
    with open(document, encoding="utf-8") as f:
        blocks = f.read().split("```python\n")[1:]
    return next(b for b in (b.split("```")[0] for b in blocks) if b.startswith('"""dump_transformers.py'))


@unittest.skipUnless(TORCH, "PyTorch is not installed: the script of IMPORT.md")
class Script(Case):
    """The script of IMPORT.md, its map, and a tree with the port's names that gives out golden values."""

    # What the port does not have as a value of its own (tools/maps/transformers-v41.yaml).
    ABSENT = {"gate", "index_scores", "index_w"}

    def test_script_and_map_give_the_golden_dump(self):
        import replay
        script = {"__name__": "dump_transformers"}
        exec(compile(script_of(os.path.join(foreign.ROOT, "tools", "IMPORT.md")), "IMPORT.md", "exec"), script)
        with h5py.File(golden("p0")) as f:
            ids, config = f["token_ids"][()].tolist(), json.loads(f.attrs["config_json"])["text_config"]
        script["dump"](replay.Replay(golden("p0"), config), ids, self.path("dump"), 23)
        transformers = os.path.join(MAPS, "transformers-v41.yaml")
        report = json.loads(self.imports("--json", "--strict", mapping=transformers))
        self.assertEqual((report["steps"], report["unmapped"], report["absent"]), (3, [], []))
        self.assertEqual(report["off_grid"], [])
        with h5py.File(golden("p0")) as f, h5py.File(self.path("out.h5"), "a") as out:
            self.assertEqual(out["logits_oneshot"][()].tobytes(), f["logits"][()].tobytes())
            missing = {p for p in foreign.walk(f) if p.startswith("layers") and p not in out and "_margin" not in p}
            self.assertEqual({p.rsplit("/", 1)[1] for p in missing}, self.ABSENT)
        self.diff(self.path("out.h5"), golden("p0"), 0, "same: ", "bit-equal")


class Sglang(Case):
    """maps/sglang-dumper.yaml on files named and filled as SGLang's dumper does: one tensor each, two ranks, a warm-up
    run, positions saved again and again. (.npz here; the dumper's .pt differ in the container only.)"""

    def tensor(self, name, step, rank, value, layer=None):
        self.index = getattr(self, "index", 0) + 1
        os.makedirs(self.path("dump", "dump_1"), exist_ok=True)
        tags = f"step={step}___rank={rank}___dump_index={self.index}___name={name}___recompute_status=disabled"
        tags += "" if layer is None else f"___layer_id={layer}"
        key, value = ("value:bf16", value.array) if isinstance(value, Bits) else ("value", value)
        np.savez(self.path("dump", "dump_1", tags + ".npz"), **{key: value})

    def module(self, name, step, value):
        layer = name.split(".")[2] if name.startswith("model.layers") else None
        for rank in range(2):
            self.tensor("non_intrusive__" + name, step, rank, value, layer)

    def run_of(self, f, step, a, b):
        for rank in range(2):
            for layer in (None, 0, 1):
                self.tensor("positions", step, rank, np.arange(a, b), layer)
            self.tensor("input_ids", step, rank, f["token_ids"][a:b].astype(np.int64))
        self.module("model.embed_tokens.output", step, bf16(f["embed"][a:b]))
        for i in range(10):
            old, new = f"layers/{i:02}/", f"model.layers.{i}."
            if old + "engram/rows" in f:
                self.module(new + "engram.inputs.1", step, f[old + "engram/rows"][a:b])
                self.module(new + "engram.output", step, bf16(f[old + "engram/out"][a:b]))
            for name, path in (("self_attn.inputs.x", "attn/u"), ("self_attn.output", "attn/y"),
                               ("mlp.inputs.0", "ffn/u"), ("mlp.output", "ffn/y")):
                self.module(new + name, step, bf16(f[old + path][a:b]))
            ids = f[old + "ffn/expert_ids"][a:b]
            self.module(new + "mlp.topk.output.1", step, np.c_[ids[:, ::-1], np.full(b - a, 8, np.int32)])
            self.module(new + "mlp.gate.output", step, np.zeros((b - a, 8), np.float32))
            for rank in range(2):
                self.tensor("stream_mid", step, rank, bf16(f[old + "mid"][a:b]), i)
                self.tensor("attn_o", step, rank, bf16(f[old + "attn/o"][a:b, rank * 4:rank * 4 + 4]), i)
        self.module("model.norm.inputs.0", step, bf16(f["final/h"][a:b]))
        self.module("model.norm.output", step, bf16(f["final/norm"][a:b]))
        self.module("logits_processor.output.next_token_logits", step, f["logits"][b - 1:b])

    def test_names_of_the_dumper(self):
        sglang = os.path.join(MAPS, "sglang-dumper.yaml")
        with h5py.File(golden("p2")) as f:
            self.run_of(f, 0, 0, 2)
            self.run_of(f, 3, 0, 4)
            self.run_of(f, 4, 4, 6)
        self.refuses(1, "several sequences", mapping=sglang)
        report = json.loads(self.imports("--strict", "--json", "--steps", "3..4", mapping=sglang))
        self.assertEqual((report["unmapped"], report["absent"], report["taps"]), ([], [], 10 * 7 + 2 * 2 + 4))
        with h5py.File(golden("p2")) as f, h5py.File(self.path("out.h5")) as out:
            self.assertEqual(list(out["logit_positions"]), [3, 5])
            self.assertEqual(out["logits"][()].tobytes(), f["logits"][[3, 5]].tobytes())
        self.diff(self.path("out.h5"), golden("p2"), 0, "same: 78 taps", "bit-equal")
        with h5py.File(golden("p2")) as f:
            self.tensor("positions", 3, 1, np.arange(1, 5), 7)
        os.remove(self.path("out.h5"))
        self.refuses(1, "positions: saved twice with different values", args=("--steps", "3..4"), mapping=sglang)
