"""Tensors and map to taps: matching, joining over ranks and steps, labels, and the checks of shape and type."""

from types import SimpleNamespace

import numpy as np

from . import Refused
from .schema import INPUTS, expand
from .transforms import apply, ascending, bits_equal, decode, join_ranks, misfit, on_bf16_grid, scaled


class Matching:
    """Which tensor serves which path. parts: path -> {step: {rank: tensor}}; rules: path -> its rule."""

    def __init__(self, mapping, tensors, model, steps):
        self.parts, self.rules, self.values = {}, {}, {}
        self.repeats = []  # (path, step, tensor): inputs that an engine saved again
        self.named, self.ambiguous = {}, set()
        self.unmapped, self.ignored, self.ranks = [], 0, 1
        for tensor in tensors:
            name, step, rank, values = self.parse(mapping, tensor)
            if steps and not steps[0] <= step <= steps[1]:
                self.ignored += 1
                continue
            if self.named.setdefault((name, step, rank), tensor) is not tensor:
                self.ambiguous.add((name, step, rank))
            self.ranks = max(self.ranks, rank + 1)
            self.place(mapping, model, tensor, (name, step, rank, values))

    @staticmethod
    def parse(mapping, tensor):
        """Name, step, rank and the numbers {L}, {S} that the full name itself tells."""
        for names in mapping.names:
            found = names.fullmatch(tensor.name)
            if found:
                groups = {k: v for k, v in found.groupdict().items() if v is not None}
                numbers = {k: v for k, v in groups.items() if k in ("step", "rank", "L", "S")}
                if all(n.isdecimal() and len(n) < 10 for n in numbers.values()):
                    numbers = {k: int(v) for k, v in numbers.items()}
                    step, rank = numbers.pop("step", 0), numbers.pop("rank", 0)
                    return groups["name"], step, rank, numbers
        return tensor.name, 0, 0, {}

    def place(self, mapping, model, tensor, key):
        name, step, rank, told = key
        reason, used = "", False
        for rule in mapping.inputs + mapping.taps:
            found = rule.pattern.fullmatch(name)
            if not found:
                continue
            values = {k: int(v) for k, v in found.groupdict().items() if v is not None and k in "LS"}
            path = expand(rule.to, {**told, **values})
            if path is None or path not in INPUTS and not model.tap(path):
                reason = f"no tap {path or rule.to} in this model"
                continue
            used = True
            self.take(path, rule, tensor, (step, rank, {**told, **values}))
        if not used and any(p.fullmatch(name) for p in mapping.ignore):
            self.ignored += 1
        elif not used:
            self.unmapped.append({"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype,
                                  "why": reason or "no rule of the map"})

    def take(self, path, rule, tensor, key):
        step, rank, values = key
        if self.rules.setdefault(path, rule) is not rule:
            raise misfit(path, f"mapped twice: {self.rules[path].where} and {rule.where} ({tensor.where()})")
        ranks = self.parts.setdefault(path, {}).setdefault(step, {})
        if ranks.setdefault(rank, tensor) is not tensor:
            if path not in INPUTS:
                raise misfit(path, f"two tensors for it: {ranks[rank].where()}, {tensor.where()}")
            self.repeats.append((path, ranks[rank], tensor))
        self.values.setdefault(path, values)


class Importer:
    """Reads what a Matching found, path by path."""

    def __init__(self, matching, model, ids):
        self.m, self.model = matching, model
        self.off_grid = []
        self.lengths = {}  # step -> tokens of it, where the dump tells
        self.read_inputs(ids)

    # -- one step of one path ------------------------------------------------------------------------------------

    def decoded(self, rule, tensor, key):
        array = decode(tensor.load(), rule.view or tensor.form, tensor.where())
        if rule.scale:
            name = expand(rule.scale["from"], key.values)
            at = name, key.step, key.rank
            other = self.m.named.get(at)
            if other is None or at in self.m.ambiguous:
                raise misfit(tensor.where(), f"its scales {name} are not there once (step {key.step}, rank {key.rank})")
            scale = decode(other.load(), rule.scale.get("view") or other.form, other.where())
            array = scaled(array, scale, rule.scale["block"], tensor.where())
        return array

    def context(self, path, step):
        sizes = self.sizes(path)

        def size(value):
            if type(value) is int:
                return value
            if value not in sizes:
                raise Refused(2, f"{self.m.rules[path].where}: size {value!r} is none of {', '.join(sorted(sizes))}")
            return sizes[value]

        return SimpleNamespace(size=size, what=f"{path}, step {step}",
                               order=lambda other: self.order(path, other, step))

    def sizes(self, path):
        tap = self.model.tap(path)
        return self.model.sizes_at(tap, self.n) if tap else {}

    def step_array(self, path, step, until=None):
        """One step, its ranks joined, its operations done (those before the operation `until`, where given)."""
        rule, parts = self.m.rules[path], {}
        for rank, tensor in self.m.parts[path][step].items():
            key = SimpleNamespace(step=step, rank=rank, values=self.m.values[path])
            parts[rank] = (self.decoded(rule, tensor, key), tensor.where())
        whole = join_ranks(parts, rule.shard, self.m.ranks, f"{path}, step {step}")
        ops = rule.ops
        if until is not None:
            names = [name for name, _ in ops]
            if until not in names:
                raise Refused(2, f"{rule.where}: another rule sorts like {path}, which has no operation {until}")
            ops = ops[:names.index(until)]
        return apply(ops, whole, self.context(path, step))

    def order(self, path, template, step):
        """The permutation that `sort` makes of another tap of the same layer and step."""
        other = expand(template, self.m.values[path])
        if step not in self.m.parts.get(other, {}):
            raise misfit(path, f"is to be sorted like {other}, which is not there in step {step}")
        return ascending(self.step_array(other, step, until="sort"))

    def joined(self, path):
        """All steps of a path."""
        rule, steps = self.m.rules[path], sorted(self.m.parts[path])
        if rule.steps == "last":
            return self.step_array(path, steps[-1])
        arrays = [self.step_array(path, s) for s in steps]
        if len(arrays) == 1:
            return arrays[0]
        if any(a.ndim == 0 or a.ndim != arrays[0].ndim for a in arrays):
            raise misfit(path, f"steps of shapes {[list(a.shape) for a in arrays]} cannot follow each other")
        if "pad" in rule.steps:
            width = np.max([a.shape[1:] for a in arrays], 0)
            arrays = [np.pad(a, [(0, 0)] + [(0, w - n) for w, n in zip(width, a.shape[1:])],
                             constant_values=rule.steps["pad"]) for a in arrays]
        if any(a.shape[1:] != arrays[0].shape[1:] for a in arrays):
            raise misfit(path, f"steps of shapes {[list(a.shape) for a in arrays]} cannot follow each other")
        return np.concatenate(arrays)

    # -- inputs and labels -------------------------------------------------------------------------------------------

    def read_inputs(self, ids):
        self.n, self.inputs = 0, {}
        for path, first, again in self.m.repeats:
            if not bits_equal(first.load(), again.load()):
                raise misfit(path, f"saved twice with different values: {first.where()}, {again.where()}")
        for path in INPUTS:
            if path in self.m.parts:
                for step in self.m.parts[path]:
                    rows = self.step_array(path, step).shape
                    if path in ("token_ids", "positions") and rows:
                        self.lengths[step] = rows[0]
                self.inputs[path] = integers(path, self.joined(path), INPUTS[path], "the dump")
                if self.inputs[path].ndim != 1:
                    raise misfit(path, f"one axis wanted, the dump has {list(self.inputs[path].shape)}")
        own = self.inputs.pop("token_ids", None)
        self.token_ids = own if ids is None else integers("token_ids", ids, "<i4", "the ids file")
        if self.token_ids is None:
            raise Refused(2, "token ids: none in the dump and no --ids-file")
        self.n = len(self.token_ids)
        self.place_rows(own)
        if own is not None and not bits_equal(own, self.token_ids[self.positions]):
            raise misfit("token_ids", "the dump holds other ids than the ids file")

    def place_rows(self, own):
        """Positions of the token rows: all of 0..N-1, or a run of them where a prefix was cached."""
        rows = len(own) if own is not None else self.n
        self.positions = self.inputs.pop("positions", np.arange(rows, dtype="<i4"))
        p = self.positions
        if len(p) == 0 or p[0] < 0 or np.any(np.diff(p) != 1):
            raise misfit("positions", "not consecutive: rows of several sequences? dump one sequence at a time")
        if p[-1] >= self.n:
            raise misfit("positions", f"{p[0]}..{p[-1]} with {self.n} token ids: give all ids by --ids-file")
        if own is not None and len(own) != len(p):
            raise misfit("positions", f"{len(p)} of them, {len(own)} token ids in the dump")
        self.rows_path = "/positions" if len(p) == self.n else "/rows_sub"

    def last_positions(self, path):
        """Label of each step's last row."""
        steps = sorted(self.m.parts[path])
        if not self.lengths:
            if len(steps) == 1:
                return self.positions[-1:]
            raise misfit(path, "rows: last in several steps wants token_ids or positions in the dump")
        ends = dict(zip(sorted(self.lengths), np.cumsum([self.lengths[s] for s in sorted(self.lengths)])))
        if any(s not in ends for s in steps):
            raise misfit(path, "has steps that token_ids and positions lack")
        return self.positions[[ends[s] - 1 for s in steps]]

    # -- a finished tap ----------------------------------------------------------------------------------------------

    def tap(self, path):
        """(array as stored, source_dtype, path of its labels)."""
        rule, tap, array = self.m.rules[path], self.model.tap(path), self.joined(path)
        sizes = self.sizes(path)
        sizes["N"] = len(self.positions)
        sizes["R"] = array.shape[0] if array.ndim else 0
        if "E" in tap.shape and "E" not in sizes:
            raise misfit(path, "its layer has no entries in this model")
        want = [sizes[letter] for letter in tap.shape]
        if list(array.shape) != want:
            some = next(iter(self.m.parts[path][max(self.m.parts[path])].values()))
            raise misfit(path, f"shape {list(array.shape)} after the map, the schema wants {want} "
                               f"({' '.join(tap.shape)}); {some.where()} {list(some.shape)}")
        dtype = rule.source_dtype or tap.dtype
        return *self.stored(path, array, dtype), self.label(path, tap, array)

    def stored(self, path, array, dtype):
        if dtype == "int":
            return integers(path, array, "<i8" if path.endswith("engram/rows") else "<i4", "the map"), dtype
        if dtype == "bool":
            return integers(path, array, "|u1", "the map", most=1), dtype
        if array.dtype.kind != "f":
            raise misfit(path, f"values wanted, the map gives {array.dtype}")
        with np.errstate(over="ignore"):
            narrow = array.astype("<f4")
        if array.dtype.itemsize > 4 and not np.array_equal(narrow.astype(array.dtype), array, equal_nan=True):
            raise misfit(path, "float64 values that float32 does not hold; cast: f32 says that rounding is meant")
        if dtype != "f32" and not on_bf16_grid(narrow):
            self.off_grid.append(path)  # an engine that keeps more here than the model defines; said in the file
            dtype = "f32"
        return narrow, dtype

    def label(self, path, tap, array):
        kind = tap.shape[0]
        if kind == "N":
            return self.rows_path
        if kind == "E":
            return f"/entries_r{self.model.ratios[tap.layer]}"
        if kind == "B":
            return "/dspark/draft_positions"
        if kind == "W":
            if len(self.inputs.get("dspark/ring_positions", [])) != len(array):
                raise misfit(path, "wants the input dspark/ring_positions, one position a slot")
            return "/dspark/ring_positions"
        labels = self.inputs.get("logit_positions")
        if labels is None:
            labels = self.last_positions(path) if self.m.rules[path].rows == "last" else self.positions
            self.inputs["logit_positions"] = labels
        if len(labels) != len(array):
            raise misfit(path, f"{len(array)} rows, {len(labels)} labels")
        return "/logit_positions"


def integers(path, array, dtype, whose, most=None):
    if array.dtype.kind not in "biu":
        raise misfit(path, f"integers wanted, {whose} gives {array.dtype}")
    limits = np.iinfo(dtype)
    top = limits.max if most is None else most
    if array.size and (int(array.min()) < limits.min or int(array.max()) > top):
        raise misfit(path, f"{array.min()}..{array.max()}, allowed {limits.min}..{top}")
    return np.ascontiguousarray(array, dtype)
