"""Broken files, files that would run code, and maps that say nothing: a message, nothing executed, nothing written."""

import json
import os
import pickle
import unittest
import zipfile

import numpy as np

import foreign
from case import MAP, MAPS, TORCH, Case
from import_dump import Refused, mapfile, sources, transforms


class Hostile(Case):
    """Files that are broken or would run code: exit 3 with a message, nothing executed, nothing written."""

    def file(self, name, data):
        os.makedirs(self.path("dump"), exist_ok=True)
        with open(self.path("dump", name), "wb") as f:
            f.write(data)

    def safetensors(self, header, data=b"\0" * 16, length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        self.file("a.safetensors", (len(text) if length is None else length).to_bytes(8, "little") + text + data)

    def test_safetensors_that_are_cut_or_lie_about_their_length(self):
        for raw in (b"", b"\1\2", b"\xff" * 8, (1 << 40).to_bytes(8, "little") + b"{}"):
            self.file("a.safetensors", raw)
            self.refuses(3, "a.safetensors", "header")
        self.safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, length=30)
        self.refuses(3, "a.safetensors", "header")

    def test_safetensors_whose_tensors_overlap_or_leave_holes(self):
        one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        self.safetensors({"a": one, "b": {**one, "data_offsets": [4, 12]}})
        self.refuses(3, "b", "begins at 4", "ends at 8")
        self.safetensors({"a": one})
        self.refuses(3, "end at 8, the data at 16")

    def test_safetensors_with_wrong_entries(self):
        for entry in ({"dtype": "F32", "shape": [5], "data_offsets": [0, 16]},
                      {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]},
                      {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
                      {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 16]},
                      {"dtype": "F32", "shape": [4.0], "data_offsets": [0, 16]},
                      {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
                      {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]},
                      {"dtype": "F4", "shape": [31], "data_offsets": [0, 16]},
                      {"shape": [4]}, {"dtype": "F32", "shape": 4, "data_offsets": [0]}, [], None, 7):
            self.safetensors({"a": entry})
            self.refuses(3, "a.safetensors: a:")

    def test_safetensors_headers_that_are_no_table(self):
        for text in (b"[]", b"nonsense", b'{"a":1,"a":2}', b"[" * 100000, b"\xff\xfe", b'{"a":' * 5000):
            self.safetensors(text)
            self.refuses(3, "a.safetensors")

    def test_npz_with_a_pickle(self):
        os.mkdir(self.path("dump"))
        np.savez(self.path("dump", "a.npz"), a=np.array([Bomb(self.path("ran"))], object))
        self.refuses(3, "a.npz: a: an array of Python objects")
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_npz_that_is_cut_or_no_zip(self):
        self.export()
        path = self.path("dump", "step0", "rank1.npz")
        with open(path, "rb") as f:
            whole = f.read()
        for cut in (0, 10, len(whole) // 2, len(whole) - 30):
            with open(path, "wb") as f:
                f.write(whole[:cut])
            self.refuses(3, "rank1.npz")
        with open(path, "wb") as f:  # its directory is whole, the data are not
            f.write(whole[:4000] + bytes(len(whole) // 2) + whole[4000 + len(whole) // 2:])
        self.refuses(3, "rank1.npz")

    def test_npz_whose_header_promises_more_than_there_is(self):
        os.mkdir(self.path("dump"))
        good = self.path("a.npy")
        np.save(good, np.zeros(4, np.float32))
        with open(good, "rb") as f:
            raw = f.read()
        for lie in (b"(9,), ", b"(1099511627776,), ", b"(-4,), ", b"'x',"):
            member = raw.replace(b"(4,), ", lie)
            with zipfile.ZipFile(self.path("dump", "a.npz"), "w") as z:
                z.writestr("a.npy", member)
            self.refuses(3, "a.npz: a:")

    def test_pt_without_torch_says_so(self):
        if TORCH:
            self.skipTest("PyTorch is installed")
        self.file("a.pt", b"PK")
        self.refuses(3, "a.pt", "PyTorch")

    @unittest.skipUnless(TORCH, "PyTorch is not installed: .pt")
    def test_pt_that_would_run_code(self):
        import torch
        os.mkdir(self.path("dump"))
        torch.save({"a": Bomb(self.path("ran"))}, self.path("dump", "a.pt"))
        self.refuses(3, "a.pt", "weights_only")
        self.file("a.pt", pickle.dumps(Bomb(self.path("ran"))))
        self.refuses(3, "a.pt", "weights_only")
        self.assertFalse(os.path.exists(self.path("ran")))
        self.file("a.pt", b"PK\3\4 cut")
        self.refuses(3, "a.pt")

    def test_flipped_and_cut_bytes_are_refused_or_read(self):
        """Whatever is in a file: an answer, or Refused with the file's name."""
        rng = np.random.default_rng(3)
        tensors = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.arange(5)}
        bits = {"c:bf16": np.ones(3, np.uint16)}
        os.mkdir(self.path("dump"))
        np.savez(self.path("plain.npz"), **tensors, **bits)
        np.savez_compressed(self.path("packed.npz"), **tensors, **bits)
        foreign.save_safetensors(self.path("a.safetensors"), tensors)
        refused = 0
        for name in ("plain.npz", "packed.npz", "a.safetensors"):
            with open(self.path(name), "rb") as f:
                good = np.frombuffer(f.read(), np.uint8)
            for turn in range(300):
                bad = good[:rng.integers(len(good)) if turn % 10 == 0 else len(good)].copy()
                for at in rng.integers(len(bad) or 1, size=1 + turn % 3 if len(bad) else 0):
                    bad[at] = rng.integers(256) if turn % 2 else bad[at] ^ 1 << rng.integers(8)
                with open(self.path("dump", name), "wb") as f:
                    f.write(bad.tobytes())
                try:
                    for tensor in sources.tensors_of([self.path("dump", name)]):
                        tensor.load()
                except Refused as answer:
                    refused += 1
                    self.assertIn(name, str(answer))
                    self.assertEqual(answer.code, 3)
        self.assertGreater(refused, 300)

    def test_nothing_there(self):
        os.mkdir(self.path("dump"))
        self.refuses(3, "no tensors in files")
        self.refuses(3, "no such file", dump="elsewhere")


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class Maps(Case):
    def refused_map(self, text, *words):
        with open(self.path("m.yaml"), "w", encoding="utf-8") as f:
            f.write(text)
        self.refuses(2, *words, mapping=self.path("m.yaml"))

    def test_maps_that_say_nothing_or_too_much(self):
        self.export()
        head = "map: dsf-import-1\ntaps:\n  - "
        for text, word in (
                ("a: [", "YAML"), ("[]", "map: dsf-import-1"), ("map: dsf-import-2", "map: dsf-import-1"),
                ("map: dsf-import-1\ncolour: red", "nothing else"), ("map: dsf-import-1\nnames: '(.*)'", "(?P<name>"),
                (head + "{from: a}", "taps[0]"), (head + "{from: a, to: layers/00/attn/x}", "no tap of the schema"),
                (head + "{from: a, from_re: b, to: embed}", "one of from, from_re"),
                (head + "{from_re: '(', to: embed}", "no regular expression"),
                (head + "{from: a, to: embed, ops: [fold]}", "'fold'"),
                (head + "{from: a, to: embed, ops: [{pad: 3}]}", "pad wants axis, to, value"),
                (head + "{from: a, to: embed, shard: heads}", "shard 'heads'"),
                (head + "{from: a, to: embed, view: fp7}", "view 'fp7'"),
                (head + "!!python/object/apply:os.system ['true']", "YAML")):
            self.refused_map(text, word)

    def test_a_size_that_is_no_size(self):
        self.export()
        with open(MAP, encoding="utf-8") as f:
            text = f.read()
        self.refused_map(text.replace("[-1, IH, ID]", "[-1, IH, IQ]"), "'IQ'", "taps[")

    def test_the_maps_that_ship_are_maps(self):
        folder = MAPS
        names = sorted(n for n in os.listdir(folder) if n.endswith(".yaml"))
        self.assertGreaterEqual(len(names), 2)
        os.mkdir(self.path("dump"))
        np.savez(self.path("dump", "a.npz"), nothing=np.zeros(3))
        with open(self.path("ids"), "w", encoding="ascii") as f:
            f.write("1, 2, 3")
        for name in names:
            self.refuses(1, "no tensor is a tap", args=("--ids-file", self.path("ids")),
                         mapping=os.path.join(folder, name))

    def test_the_example_in_the_document_is_a_map(self):
        with open(os.path.join(foreign.ROOT, "tools", "IMPORT.md"), encoding="utf-8") as f:
            example = f.read().split("```yaml\n")[1].split("```")[0]
        with open(self.path("m.yaml"), "w", encoding="utf-8") as f:
            f.write(example)
        self.assertEqual(mapfile.load(self.path("m.yaml")).engine, "my engine 1.2")

    def test_every_operation_and_key_is_in_the_document(self):
        with open(os.path.join(foreign.ROOT, "tools", "IMPORT.md"), encoding="utf-8") as f:
            text = f.read()
        words = set(transforms.OPS) | mapfile.RULE | mapfile.TOP | set(sources.FORMS)
        self.assertEqual([w for w in sorted(words) if f"`{w}" not in text and f"{w}:" not in text], [])

    def test_list_tells_names_shapes_and_places(self):
        self.export()
        out = self.imports("--list")
        self.assertIn("step0/rank1:blocks.3.q  bf16 [1, 4, 6, 64]  -> layers/03/attn/q\n", out)
        self.assertFalse(os.path.exists(self.path("out.h5")))
        self.assertIn("nothing written", self.imports("--dry-run"))
        self.assertFalse(os.path.exists(self.path("out.h5")))
