"""A golden dump, exported to foreign layouts and imported again, is the same; what does not fit is refused."""

import json
import os
import subprocess
import sys
import unittest

import h5py
import numpy as np

from case import IMPORT, MAP, TORCH, Case, golden
from foreign import Bits, Engine, bf16, save
from import_dump import transforms


class RoundTrip(Case):
    def check(self, prompt, ranks, cuts, kind, taps):
        self.export(prompt, ranks, cuts, kind)
        self.imports("--strict", *(() if prompt in ("p0", "p2") else ("--dry-run",)))
        if prompt in ("p0", "p2"):
            self.assertEqual(self.same_bits(golden(prompt), self.path("out.h5")), taps)
            self.diff(golden(prompt), self.path("out.h5"), 0, "same: ", "bit-equal")

    def test_npz_of_two_ranks_and_two_chunks(self):
        self.check("p0", 2, [40], "npz", 327)

    def test_safetensors_of_four_ranks(self):
        self.check("p0", 4, [], "safetensors", 327)

    def test_three_uneven_chunks_of_one_rank(self):
        self.check("p2", 1, [2, 3], "npz", 327)

    @unittest.skipUnless(TORCH, "PyTorch is not installed: .pt")
    def test_pt_of_two_ranks_and_two_chunks(self):
        self.check("p2", 2, [4], "pt", 327)

    def test_a_dump_of_few_taps_with_an_image(self):
        self.export("p3", 2, [9])
        out = self.imports()
        self.assertIn("mapped, but not in the dump", out)
        self.assertGreater(self.same_bits(golden("p3"), self.path("out.h5")), 50)
        self.diff(golden("p3"), self.path("out.h5"), 0, "bit-equal")

    def test_as_a_command(self):
        self.export()
        run = [sys.executable, IMPORT]
        done = subprocess.run([*run, *self.command()], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("327 taps, 6 rows of 6 tokens, 1 steps, 2 ranks", done.stdout)
        for words, code in (([], 2), (["--help"], 0), ([self.path("dump")], 2), ([self.path("dump"), "--colour"], 2),
                            ([*self.command(), "--steps", "x"], 2), ([self.path("dump"), "--list"], 0)):
            done = subprocess.run([*run, *words], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_the_same_dump_gives_the_same_bytes(self):
        self.export()
        self.imports()
        os.rename(self.path("out.h5"), self.path("first.h5"))
        self.imports()
        with open(self.path("first.h5"), "rb") as a, open(self.path("out.h5"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_root_attributes_say_where_it_comes_from(self):
        self.export()
        self.imports("--prompt-length", "5", "--checkpoint-digest", "ab12", "--notes", "n")
        with h5py.File(self.path("out.h5")) as f:
            told = {k: v.decode() if isinstance(v, bytes) else int(v) for k, v in f.attrs.items()}
        self.assertEqual((told["schema"], told["mode"], told["model"]), ("dsv41-dump-1", "exact", "mini"))
        self.assertEqual((told["backend"], told["checkpoint_digest"]), ("made-up engine", "ab12"))
        self.assertEqual((told["prompt_length"], told["notes"]), (5, "n"))
        self.assertRegex(told["plan_digest"], "^map [0-9a-f]{64}$")


class Planted(Case):
    """One changed value in the foreign dump is found by dsf diff, by name."""

    def planted(self, name, rank, change, *words):
        engine = self.export()
        value = engine.files[0][rank][name]
        array = (value.array if isinstance(value, Bits) else value).copy()
        change(array)
        engine.files[0][rank][name] = Bits(array, value.form) if isinstance(value, Bits) else array
        self.resave(engine)
        self.imports()
        self.diff(golden("p2"), self.path("out.h5"), 1, *words)

    def test_a_bit_of_q_on_the_second_rank(self):
        def change(q):
            q[0, 1, 3, 5] ^= 1
        self.planted("blocks.6.q", 1, change, "layers/06/attn/q")

    def test_a_packed_code(self):
        def change(codes):
            codes[1, 2] ^= 0x10
        engine = self.export()
        for rank in range(2):
            codes = engine.files[0][rank]["blocks.5.cache.codes"]
            engine.files[0][rank]["blocks.5.cache.codes"] = Bits(codes.array.copy(), codes.form)
            change(engine.files[0][rank]["blocks.5.cache.codes"].array)
        self.resave(engine)
        self.imports()
        self.diff(golden("p2"), self.path("out.h5"), 1, "layers/05/attn/kv_main")

    def test_weights_that_do_not_go_with_their_experts(self):
        engine = self.export()
        for rank in range(2):
            ids = engine.files[0][rank]["blocks.3.moe.ids"].copy()
            ids[2, [0, 1]] = ids[2, [1, 0]]
            engine.files[0][rank]["blocks.3.moe.ids"] = ids
        self.resave(engine)
        self.imports()
        self.diff(golden("p2"), self.path("out.h5"), 1, "layers/03/ffn/expert_weights")


class Misfits(Case):
    """What does not fit is refused with names, files and both shapes."""

    def test_a_rank_is_missing(self):
        self.export(ranks=4)
        os.remove(self.path("dump", "step0", "rank2.npz"))
        self.refuses(1, "rank 2 of 4 is missing", "rank0.npz")

    def test_ranks_that_should_agree_differ(self):
        engine = self.export()
        engine.files[0][1]["blocks.4.attn.input"] = bf16(engine.read("layers/04/attn/u") * np.float32(2))
        self.resave(engine)
        self.refuses(1, "layers/04/attn/u", "ranks 0 and 1 differ", "rank0.npz", "rank1.npz")

    def test_shards_of_different_shape(self):
        engine = self.export()
        engine.files[0][1]["blocks.4.o"] = engine.files[0][1]["blocks.4.o"].cut(lambda a: a[:, :, 1:])
        self.resave(engine)
        self.refuses(1, "layers/04/attn/o", "[6, 4, 64]", "[6, 4, 63]", "rank1.npz")

    def test_a_shape_that_is_not_the_schema_s(self):
        engine = self.export()
        for rank in range(2):
            engine.files[0][rank]["blocks.4.mid"] = engine.files[0][rank]["blocks.4.mid"].cut(lambda a: a[:, :3])
        self.resave(engine)
        self.refuses(1, "layers/04/mid", "[6, 3, 128]", "[6, 4, 128]", "blocks.4.mid", "rank")

    def test_two_tensors_for_one_tap(self):
        engine = self.export()
        engine.files[0][0]["blocks.04.mid"] = engine.files[0][0]["blocks.4.mid"]
        self.resave(engine)
        self.refuses(1, "layers/04/mid: two tensors for it", "blocks.4.mid", "blocks.04.mid")

    def test_two_rules_for_one_tap(self):
        self.export()
        with open(MAP, encoding="utf-8") as f, open(self.path("twice.yaml"), "w", encoding="utf-8") as out:
            out.write(f.read().replace("ignore:", "  - {from: 'blocks.{L}.output', to: 'layers/{LL}/mid'}\nignore:"))
        self.refuses(1, "mapped twice", "taps[", mapping=self.path("twice.yaml"))

    def test_several_sequences_in_a_batch(self):
        engine = self.export()
        for rank in range(2):
            engine.files[0][rank]["pos"] = np.array([0, 1, 2, 0, 1, 2])
        self.resave(engine)
        self.refuses(1, "positions", "several sequences")

    def test_scales_are_missing(self):
        engine = self.export()
        del engine.files[0][1]["blocks.2.window.scale"]
        self.resave(engine)
        self.refuses(1, "blocks.2.window.scale", "rank 1")

    def test_strict_names_what_is_left_over_and_what_is_absent(self):
        engine = self.export()
        for rank in range(2):
            engine.files[0][rank]["blocks.1.surprise"] = np.zeros((2, 3), np.float32)
            del engine.files[0][rank]["blocks.7.mid"]
        self.resave(engine)
        done = self.run_import("--json", "--strict")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertEqual({t["name"] for t in report["unmapped"]},
                         {f"step0/rank{r}:blocks.1.surprise" for r in range(2)})
        self.assertEqual(report["unmapped"][0]["shape"], [2, 3])
        self.assertEqual((report["absent"], report["output"]), (["layers/07/mid"], None))
        self.assertFalse(os.path.exists(self.path("out.h5")))
        self.assertIn("surprise", self.imports())

    def test_values_finer_than_the_tap_are_kept_and_said(self):
        engine = self.export()
        fine = engine.read("layers/04/mid") * np.float32(1.0001)
        for rank in range(2):
            engine.files[0][rank]["blocks.4.mid"] = fine
        self.resave(engine)
        report = json.loads(self.imports("--json"))
        self.assertEqual(report["off_grid"], ["layers/04/mid"])
        with h5py.File(self.path("out.h5")) as f:
            self.assertEqual(f["layers/04/mid"].attrs["source_dtype"], b"f32")
            self.assertEqual(f["layers/04/mid"][()].tobytes(), fine.tobytes())

    def test_float64_that_would_lose_bits(self):
        engine = self.export()
        for rank in range(2):
            engine.files[0][rank]["blocks.4.moe.scores"] = engine.read("layers/04/ffn/router_scores").astype(float) / 3
        self.resave(engine)
        self.refuses(1, "layers/04/ffn/router_scores", "cast: f32")

    def test_ids_from_a_file_must_agree_and_may_be_all_there_is(self):
        engine = self.export()
        with open(self.path("ids.json"), "w", encoding="ascii") as f:
            json.dump([int(i) + 1 for i in engine.read("token_ids")], f)
        self.refuses(1, "token_ids", args=("--ids-file", self.path("ids.json")))
        for rank in range(2):
            del engine.files[0][rank]["ids"], engine.files[0][rank]["pos"]
        self.resave(engine)
        self.refuses(2, "--ids-file")
        self.imports("--ids-file", self.path("ids.json"))

    def test_rows_after_a_cached_prefix_are_labelled(self):
        engine = Engine(golden("p2"), 1, [2]).export()
        keep = {"ids", "pos"} | {f"blocks.{i}.{t}" for i in range(10) for t in ("mid", "output", "q_latent")}
        engine.files = [[{k: v for k, v in engine.files[1][0].items() if k in keep}]]
        save(engine, self.path("dump"), "npz")
        np.save(self.path("ids.npy"), engine.read("token_ids"))
        self.refuses(1, "2..5", "--ids-file")
        self.imports("--ids-file", self.path("ids.npy"))
        with h5py.File(self.path("out.h5")) as f:
            self.assertEqual(f["layers/03/mid"].attrs["rows"], b"/rows_sub")
            self.assertEqual(list(f["rows_sub"]), [2, 3, 4, 5])
        self.diff(self.path("out.h5"), golden("p2"), 0, "bit-equal")


class Formats(unittest.TestCase):
    """Narrow formats against their definition, written down once more."""

    def test_e4m3(self):
        for code in range(256):
            sign, e, m = code >> 7, code >> 3 & 15, code & 7
            want = (m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) * (-1 if sign else 1)
            got = float(transforms.E4M3[code])
            self.assertTrue(np.isnan(got) if code & 0x7F == 0x7F else got == want, code)
        self.assertEqual(float(transforms.E4M3[0x7E]), 448.0)
        self.assertTrue(np.signbit(transforms.E4M3[0x80]))

    def test_e2m1_low_half_first(self):
        self.assertEqual(list(transforms.E2M1[:8]), [0, 0.5, 1, 1.5, 2, 3, 4, 6])
        self.assertEqual(list(transforms.decode(np.array([0x21, 0xF7], np.uint8), "e2m1", "")), [0.5, 1, 6, -6])

    def test_e8m0_e5m2_bf16(self):
        self.assertEqual(list(transforms.decode(np.array([127, 0, 254], np.uint8), "e8m0", "")),
                         [1.0, 2.0 ** -127, 2.0 ** 127])
        self.assertTrue(np.isnan(transforms.decode(np.array([255], np.uint8), "e8m0", "")[0]))
        self.assertEqual(list(transforms.decode(np.array([0x3C, 0x7C, 1], np.uint8), "e5m2", "")),
                         [1.0, np.inf, 2.0 ** -16])
        self.assertEqual(list(transforms.decode(np.array([0x3F80, 0xC000], np.uint16), "bf16", "")), [1.0, -2.0])

    def test_rounding_to_bf16_is_to_nearest_even(self):
        bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF800000, 0x7F800001], np.uint32)
        want = [0x3F800000, 0x3F820000, 0x3F810000, 0x3F800000, 0x7F800000, 0xFF800000]
        got = transforms.to_bf16(bits.view(np.float32))
        self.assertEqual(list(got[:6].view(np.uint32)), want)
        self.assertTrue(np.isnan(got[6]))
