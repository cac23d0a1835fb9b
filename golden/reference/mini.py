"""Golden files of the mini model: prompts from integers, dumps, noise floor.

The prompts depend on the configuration only. p0 varied and long enough for every boundary (window,
top-k, pool), p1 repetitive, so that hashes, keys and scores meet again, p2 short enough that no
selection acts, p3 with an image span whose embedded rows are given, since the tower is not part.
"""

import os
import tempfile

import numpy as np

import floor
from compare import compare_taps
from formats import bf16
from model import Inputs
from numerics import Arith
from record import record, write_dump

SEEDS = {"p0": 11, "p1": 15, "p2": 4, "p3": 16}
TAPS = {"p0": "all", "p1": "small", "p2": "all", "p3": "small"}
LENGTH = {"p0": 64, "p1": 29, "p3": 27}
SPAN_START, SPAN_HEIGHT, SPAN_WIDTH = 6, 2, 3  # p3; section 11.4 of architecture.md
MASK64 = (1 << 64) - 1


class Integers:
    """splitmix64: the same numbers everywhere, no floating point."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = self.state + 0x9E3779B97F4A7C15 & MASK64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        return (z ^ z >> 31) % n


def text_ids(cfg, draw, count):
    """Ordinary ids: not bos, eos, pad, image or noise."""
    special = {0, 1, 2, cfg.image_id, cfg.noise_id}
    ids = []
    while len(ids) < count:
        one = draw.below(cfg.vocab)
        if one not in special:
            ids.append(one)
    return ids


def image_prompt(m, draw):
    """Text, START, rows of IMAGE + NEWLINE, END, text (section 11.4)."""
    cfg = m.cfg
    types = [0] + ([1] * SPAN_WIDTH + [2]) * SPAN_HEIGHT + [3]
    tail = LENGTH["p3"] - SPAN_START - len(types)
    ids = [cfg.bos_id] + text_ids(cfg, draw, SPAN_START - 1) + [cfg.image_id] * len(types)
    ids = np.array(ids + text_ids(cfg, draw, tail))
    types = np.array([-1] * SPAN_START + types + [-1] * tail)
    mask = types >= 0
    embed = m.embed(ids)
    pairs = np.array([text_ids(cfg, draw, 2) for _ in range(mask.sum())])
    embed[mask] = bf16(m.embed(pairs[:, 0]) - m.embed(pairs[:, 1]))  # rows that no token has
    return Inputs(ids, mask, embed, types)


def prompt(m, name, seed):
    cfg, draw = m.cfg, Integers(1000 * seed + int(name[1:]))
    if name == "p0":
        return Inputs([cfg.bos_id] + text_ids(cfg, draw, LENGTH[name] - 1))
    if name == "p1":  # a motif of 7, every third copy with one id exchanged
        motif, ids = text_ids(cfg, draw, 7), []
        for copy in range(LENGTH[name] // 7 + 1):
            ids += motif if copy % 3 != 2 else motif[:3] + text_ids(cfg, draw, 1) + motif[4:]
        return Inputs([cfg.bos_id] + ids[:LENGTH[name] - 1])
    if name == "p2":
        return Inputs([cfg.bos_id] + text_ids(cfg, draw, cfg.index_topk - 1))
    return image_prompt(m, draw)


def names(cfg):
    return [n for n in TAPS if n != "p3" or cfg.image_id is not None]


def make(m, folder, accept_growth=False):
    """All files are made aside and put in place together: a refused floor leaves the old dumps too."""
    os.makedirs(folder, exist_ok=True)
    place = os.path.join(folder, "noise_floor.json")
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as aside:
        for name in names(m.cfg):
            notes = f"prompt {name}, seed {SEEDS[name]}; row t is the last row of a prefill of t+1 tokens"
            write_dump(m, prompt(m, name, SEEDS[name]), os.path.join(aside, f"dump-{name}.h5"),
                       TAPS[name] == "small", notes, True)
        new = floor.build(m, aside)
        if not accept_growth:
            floor.check_growth(place, new)
        floor.save(new, os.path.join(aside, "noise_floor.json"))
        for name in sorted(os.listdir(aside)):
            os.replace(os.path.join(aside, name), os.path.join(folder, name))


def search(m, count):
    """Prompt seeds ranked by flips and distance of re-ordered float32 runs, to choose SEEDS from."""
    for name in names(m.cfg):
        found = []
        for seed in range(1, count + 1):
            inputs = prompt(m, name, seed)
            m.set_arith(Arith())
            base, _ = record(m, inputs)
            flips, distance = 0, 0.0
            for order in ("forward", "reversed"):
                m.set_arith(Arith("f32", order))
                report = compare_taps(base, record(m, inputs)[0], m.cfg)
                flips += sum(report.flips.values())
                distance = max(distance, report.taps["out"]["rel_l2_max"])
            found.append((flips, distance, seed))
        m.set_arith(Arith())
        print(name, "best (flips, largest rel L2 of out, seed):", sorted(found)[:5])
