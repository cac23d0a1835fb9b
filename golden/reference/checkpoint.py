"""Reading a checkpoint in the released format: architecture.md section 12.

A memory-mapped safetensors reader of its own, and the dequantisation rules. Every weight is handed
out as a float64 array of exactly the value the bytes stand for; nothing is rounded here.
"""

import hashlib
import json
import os
import re
import struct

import numpy as np

from formats import decode_bf16, decode_e4m3, decode_ue8m0, unpack_e2m1

ITEM = {"BF16": "<u2", "F32": "<f4", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "u1"}


class Checkpoint:
    def __init__(self, model_dir):
        self.dir = model_dir
        with open(os.path.join(model_dir, "model.safetensors.index.json"), encoding="utf-8") as f:
            self.shard_of = json.load(f)["weight_map"]
        self.headers, self.maps, self.cache = {}, {}, {}
        for shard in sorted(set(self.shard_of.values())):
            self._open(shard)

    def _open(self, shard):
        """8-byte little-endian header length, JSON header, then the data block."""
        path = os.path.join(self.dir, shard)
        with open(path, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            self.headers[shard] = json.loads(f.read(length))
        self.maps[shard] = np.memmap(path, np.uint8, "r", 8 + length)

    def __contains__(self, name):
        return name in self.shard_of

    def raw(self, name):
        """(dtype name, array of stored items) without a copy."""
        shard = self.shard_of[name]
        entry = self.headers[shard][name]
        begin, end = entry["data_offsets"]
        return entry["dtype"], self.maps[shard][begin:end].view(ITEM[entry["dtype"]]).reshape(entry["shape"])

    def weight(self, name):
        """Dequantised float64 array, cached. Roles are told by name and dtype (section 12)."""
        if name not in self.cache:
            self.cache[name] = self._dequantise(name)
        return self.cache[name]

    def _dequantise(self, name):
        dtype, data = self.raw(name)
        if dtype == "BF16":
            return decode_bf16(data).astype(np.float64)
        if dtype == "F32":
            return data.astype(np.float64)
        scale = decode_ue8m0(self.raw(name.removesuffix("weight") + "scale")[1], name)
        if dtype == "I8" and re.search(r"\.experts\.\d", name):
            return unpack_e2m1(data) * np.repeat(scale, 32, axis=1)
        if dtype == "F8_E4M3":
            blocks = np.repeat(np.repeat(scale, 32, axis=0), 32, axis=1)
            return decode_e4m3(data) * blocks[: data.shape[0], : data.shape[1]]
        raise ValueError(f"{name}: no dequantisation rule for {dtype}")

    def table_rows(self, name, rows):
        """Engram table rows (section 8.4): e4m3 with one ue8m0 scale per row and 32 columns.

        Gathers before decoding, because the released tables have 3.8e8 rows.
        """
        scale = decode_ue8m0(self.raw(name + ".scale")[1][rows], name)
        return decode_e4m3(self.raw(name + ".weight")[1][rows]) * np.repeat(scale, 32, axis=-1)

    def digest(self):
        """sha256 over the lines `<sha256>  <file>` of config.json and the shards, sorted by name."""
        lines = [f"{file_sha256(os.path.join(self.dir, name))}  {name}\n"
                 for name in sorted([*self.headers, "config.json"])]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def file_sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def reference_digest():
    """sha256 over the lines `<sha256>  <file>` of the sources in this folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    names = sorted(n for n in os.listdir(here) if n.endswith(".py") and not n.startswith("test_"))
    lines = [f"{file_sha256(os.path.join(here, n))}  {n}\n" for n in names]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
