"""Engram token classes and n-gram hash: architecture.md 8.1-8.3, encoding.md section 5."""

import json
import os
import re
import unicodedata

import numpy as np

# Unicode White_Space; str.strip() would also take U+001C..U+001F.
WHITE_SPACE = ("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
               "\u2009\u200a\u2028\u2029\u202f\u205f\u3000")
LONE_SPACE = "\ue000"
DEAD = -1


def byte_alphabet():
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, the rest from U+0100."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{chr(b): b for b in shown}, **{chr(256 + i): b for i, b in enumerate(hidden)}}


BYTE_OF = byte_alphabet()


def decode_token(token):
    """Text of one vocabulary string. A string with a character outside the alphabet (an added token)
    is taken as text, which is what the byte-level decoder does."""
    if all(c in BYTE_OF for c in token):
        return bytes(BYTE_OF[c] for c in token).decode("utf-8", errors="replace")
    return token


def normalise(text):
    """encoding.md section 5 step 3."""
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if unicodedata.category(c)[0] != "M")
    text = "".join(c.lower() for c in text)  # one code point at a time: no final-sigma rule
    text = re.sub("[ \t\r\n]+", " ", text)
    if text == " ":
        text = LONE_SPACE
    return text.strip(WHITE_SPACE).replace(LONE_SPACE, " ")


def vocabulary(tokenizer):
    """Vocabulary string of every id: the BPE table and the added tokens."""
    token_of = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    token_of.update({t["id"]: t["content"] for t in tokenizer["added_tokens"]})
    return [token_of[i] for i in range(len(token_of))]


def class_map(tokenizer):
    """Class of every token id, numbered in order of first appearance (section 8.1)."""
    classes, result = {}, []
    for token in vocabulary(tokenizer):
        text = decode_token(token)
        key = token if "\ufffd" in text else normalise(text) or text
        result.append(classes.setdefault(key, len(classes)))
    return np.array(result, np.int64)


def load_class_map(model_dir, cfg):
    with open(os.path.join(model_dir, "tokenizer.json"), encoding="utf-8") as f:
        classes = class_map(json.load(f))
    if classes.max() + 1 != cfg.engram_classes:
        raise ValueError(f"tokenizer.json gives {classes.max() + 1} token classes, "
                         f"config.json says {cfg.engram_classes}")
    return classes


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def hash_primes(cfg):
    """Section 8.2: primes[layer][order][head], none used twice, each order starting anew."""
    used, result = set(), []
    for _ in cfg.engram_layers:
        orders = []
        for _ in range(2, cfg.engram_ngram + 1):
            candidate, heads = cfg.engram_vocab - 1, []
            while len(heads) < cfg.engram_heads:
                candidate += 1
                if candidate not in used and is_prime(candidate):
                    used.add(candidate)
                    heads.append(candidate)
            orders.append(heads)
        result.append(orders)
    return result


def hash_multipliers(layer, cfg):
    """Section 8.2: odd numbers from PCG64 seeded with 10007 * layer, one per look-back."""
    bound = (2**63 - 1) // cfg.engram_classes // 2
    draws = np.random.Generator(np.random.PCG64(10007 * layer)).integers(0, bound, cfg.engram_ngram)
    return draws * 2 + 1


class EngramHash:
    """Row numbers of the Engram tables for a whole sequence (section 8.3)."""

    def __init__(self, cfg, classes):
        self.cfg, self.classes = cfg, classes
        self.primes = dict(zip(cfg.engram_layers, hash_primes(cfg)))
        self.multipliers = {layer: hash_multipliers(layer, cfg) for layer in cfg.engram_layers}
        for layer, rows in zip(cfg.engram_layers, cfg.engram_rows):
            if sum(map(sum, self.primes[layer])) != rows:
                raise ValueError(f"engram layer {layer}: primes add up to another table size than {rows}")

    def rows(self, layer, token_ids, image_mask):
        return self.rows_of_classes(layer, np.where(image_mask, DEAD, self.classes[token_ids]))

    def rows_of_classes(self, layer, classes):
        """int64 [N, columns]. A look-back that meets the sequence start or a DEAD position is
        blocked together with all older ones and reads the pad class."""
        pad, n = self.classes[self.cfg.engram_pad], len(classes)
        primes = self.primes[layer]
        offsets = np.concatenate([[0], np.cumsum(np.ravel(primes))])
        blocked, mixed, columns = np.zeros(n, bool), np.zeros(n, np.int64), []
        for back, multiplier in enumerate(self.multipliers[layer]):
            seen = np.concatenate([np.full(min(back, n), DEAD), classes[: max(n - back, 0)]])
            blocked |= seen == DEAD
            mixed = mixed ^ np.where(blocked, pad, seen) * multiplier
            if back:
                columns += [mixed % prime for prime in primes[back - 1]]
        return np.stack(columns, axis=1) + offsets[:-1]
