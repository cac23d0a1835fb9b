"""Reads results: what each file holds is told by its content ("schema", or "bench" or "soak" in a line of
`dsf bench` or `dsf soak`), never by its name. What cannot be read is refused in words, with its file and line;
what is missing stays missing."""

import hashlib
import json
import math
import os

MOST_BYTES = 1 << 30
KINDS = {"dsf-verify": ("verify", 1), "dsf-diff": ("diff", 1), "dsf-graft": ("graft", 1), "dsf-published": ("published", 1)}
LINES = {"bench": (), "soak": ("start", "sample", "rung", "fit", "slope", "verdict")}  # with the words that are known


class Refused(Exception):
    """A result or dump that cannot be used; its text names the file, the field and what is allowed."""


class Fields:
    """A JSON object whose fields are read by type. A field that is absent or null is a missing value; one
    of another type is refused with its place."""

    def __init__(self, value, where, line=0):
        if not isinstance(value, dict):
            raise Refused(f"{where}: {name_of(value)}, allowed is an object")
        self.value, self.where, self.line = value, where, line

    def get(self, key, types, words, default):
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise Refused(f"{self.where}.{key}: {name_of(value)}, allowed is {words}")
        return value

    def has(self, key):
        return self.value.get(key) is not None

    def text(self, key, default=""):
        return plain(self.get(key, (str,), "a string", default))

    def flag(self, key, default=None):
        return self.get(key, (bool,), "true or false", default)

    def whole(self, key, default=0):
        value = self.get(key, (int, float), "an integer", default)
        if isinstance(value, float):
            if not value.is_integer():
                raise Refused(f"{self.where}.{key}: {value}, allowed is an integer")
            value = int(value)
        return value

    def number(self, key):
        return number(self.value.get(key), f"{self.where}.{key}")

    def first_number(self, *keys):
        return next((self.number(key) for key in keys if self.has(key)), math.nan)

    def object(self, key):
        value = self.value.get(key)
        return None if value is None else Fields(value, f"{self.where}.{key}")

    def items(self, key):
        return self.get(key, (list,), "a list", [])

    def objects(self, key):
        return [Fields(value, f"{self.where}.{key}[{i}]") for i, value in enumerate(self.items(key))]

    def numbers(self, key):
        return [number(value, f"{self.where}.{key}[{i}]") for i, value in enumerate(self.items(key))]

    def wholes(self, key):
        values = self.items(key)
        for i, value in enumerate(values):
            if not isinstance(value, int) or isinstance(value, bool):
                raise Refused(f"{self.where}.{key}[{i}]: {name_of(value)}, allowed is an integer")
        return values

    def texts(self, key):
        for i, value in enumerate(self.items(key)):
            if not isinstance(value, str):
                raise Refused(f"{self.where}.{key}[{i}]: {name_of(value)}, allowed is a string")
        return [plain(value) for value in self.items(key)]


def plain(text):
    """Text that has UTF-8: a JSON escape can spell half a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def name_of(value):
    """A value as an error shows it: its type, or itself where it is short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def number(value, where):
    """A number; null is NaN, as the strings "nan", "inf", "-inf" are what they say."""
    if value is None:
        return math.nan
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f'{where}: {name_of(value)}, allowed is a number, null, "inf" or "-inf"')
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def read(path):
    """The file at path as (source, [(kind, Fields)]): one document, or lines of documents."""
    try:
        size = os.path.getsize(path)
        if size > MOST_BYTES:
            raise Refused(f"{path}: {size} bytes, allowed are {MOST_BYTES}: make it without --rows")
        with open(path, "rb") as f:
            data = f.read()
    except OSError as e:
        raise Refused(f"{path}: {e.strerror}") from None
    if data.startswith(b"\x89HDF"):
        raise Refused(f"{path}: a dump, not a result; give two dumps as --reference A.h5 --ours B.h5")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise Refused(f"{path}: byte {e.start} is no UTF-8") from None
    parts = [recognise(value, where, line) for value, where, line in documents(text, path)]
    source = {"path": path, "bytes": size, "sha256": hashlib.sha256(data).hexdigest(),
              "kinds": sorted({kind for kind, _ in parts})}
    return source, parts


def documents(text, path):
    """One JSON document, or one a line: [(value, its place in words, its line)]."""
    if not text.strip():
        raise Refused(f"{path}: empty; a result is a JSON document")
    decoder, at, line, found = json.JSONDecoder(), 0, 1, []
    while at < len(text):
        if text[at] in " \t\r\n":
            line += text[at] == "\n"
            at += 1
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as e:
            of = f" (in what begins at line {line})" if e.lineno != line else ""
            raise Refused(f"{path}: line {e.lineno}, column {e.colno}: {e.msg}{of}") from None
        except (RecursionError, ValueError) as e:
            raise Refused(f"{path}: line {line}: JSON that no result has: {e}") from None
        found.append((value, line))
        line += text.count("\n", at, end)
        at = end
    alone = len(found) == 1
    return [(value, path if alone else f"{path}: line {line}", line) for value, line in found]


def recognise(value, where, line):
    fields = Fields(value, where, line)
    if fields.has("schema"):
        schema = fields.text("schema")
        name, _, version = schema.rpartition("-")
        if name in KINDS and version == str(KINDS[name][1]):
            return KINDS[name][0], fields
        known = ", ".join(f"{name}-{version}" for name, (_, version) in KINDS.items())
        raise Refused(f"{where}: schema {name_of(schema)}; known are {known}, and the lines of dsf bench and dsf soak")
    for kind, words in LINES.items():
        if fields.has(kind):
            word = fields.text(kind)
            if words and word not in words:
                raise Refused(f"{where}.{kind}: {name_of(word)}, known are {', '.join(words)}")
            return kind, fields
    raise Refused(f'{where}: no "schema", no "bench" and no "soak": not a result of dsf verify, diff, graft, bench or soak')
