"""Run one prompt and write its dump."""

import os

import numpy as np

import draft
import dump
from model import Taps, prefill


def record(m, inputs, draft_all=False):
    """(taps, anchor) of a prefill of all rows and the draft pass after it."""
    taps = Taps()
    logits = prefill(m, inputs, taps)
    best = np.sort(logits, axis=1)[:, :-3:-1]
    taps["logit_margin"] = best[:, 0] - best[:, 1]
    anchor = int(np.argmax(logits[-1]))
    draft.run(m, taps["dspark/tap"], anchor, taps)
    if draft_all:
        anchors, passes = draft.all_anchors(m, taps["dspark/tap"], logits)
        subset = np.unique(np.linspace(0, len(anchors) - 1, 8).astype(int))
        taps["draft_all/anchor_positions"] = np.arange(len(anchors))
        taps["draft_all/logit_anchor_positions"] = subset
        taps["draft_all/anchor_ids"] = anchors
        taps["draft_all/draft_ids"], taps["draft_all/confidence"] = passes["draft_ids"], passes["confidence"]
        taps["draft_all/draft_logits"] = passes["draft_logits"][subset]
    return taps, anchor


def write_dump(m, inputs, path, small, notes, draft_all=False):
    taps, anchor = record(m, inputs, draft_all)
    dump.write(path + ".part", m, inputs, taps, anchor, small, notes)
    os.replace(path + ".part", path)
