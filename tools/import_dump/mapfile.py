"""The YAML name map: which tensor is which tap, and how it is brought into the schema's shape (IMPORT.md)."""

import hashlib
import re
from types import SimpleNamespace

import yaml

from . import Refused
from .schema import INPUTS, SOURCE_DTYPES, Model
from .sources import FORMS
from .transforms import OPS

TOP = {"map", "engine", "names", "inputs", "taps", "ignore"}
RULE = {"from", "from_re", "to", "view", "scale", "shard", "ops", "steps", "rows", "source_dtype", "optional"}
NEEDS = {"select": {"axis", "index"}, "slice": {"axis", "stop"}, "pad": {"axis", "to", "value"},
         "chosen": {"where", "width"}, "rope": {"size", "to"}}
BARE = {"squeeze": 0, "sort": None}  # operations that may stand without an argument


def wrong(where, text):
    return Refused(2, f"{where}: {text}")


def pattern(where, entry):
    """Regular expression of `from` (text with {L} and {S}) or `from_re`."""
    if ("from" in entry) == ("from_re" in entry):
        raise wrong(where, "wants one of from, from_re")
    if "from_re" in entry:
        return expression(where, entry["from_re"])
    parts = re.split(r"\{([LS])\}", str(entry["from"]))
    return re.compile("".join(f"(?P<{p}>\\d+)" if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def expression(where, text):
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise wrong(where, f"{text!r} is no regular expression: {error}") from None


def operations(where, listed):
    found = []
    if not isinstance(listed, list):
        raise wrong(where, "ops wants a list")
    for item in listed:
        if isinstance(item, str) and item in BARE:
            name, arg = item, BARE[item]
        elif isinstance(item, dict) and len(item) == 1:
            name, arg = next(iter(item.items()))
        else:
            raise wrong(where, f"operation {item!r}: wants NAME or NAME: ARGUMENT")
        if name not in OPS:
            raise wrong(where, f"operation {name!r} is none of {', '.join(sorted(OPS))}")
        if name in NEEDS and not (isinstance(arg, dict) and NEEDS[name] <= set(arg)):
            raise wrong(where, f"operation {name} wants {', '.join(sorted(NEEDS[name]))}")
        found.append((name, arg))
    return found


def shard_of(where, value):
    if value in ("replicated", "sum"):
        return value
    if isinstance(value, dict) and set(value) == {"axis"} and type(value["axis"]) is int:
        return value
    raise wrong(where, f"shard {value!r} is none of replicated, sum, axis: NUMBER")


def scale_of(where, value):
    if value is None:
        return None
    if not isinstance(value, dict) or not {"from", "block"} <= set(value) <= {"from", "block", "view"}:
        raise wrong(where, "scale wants from, block and perhaps view")
    return value


def rule_of(where, entry):
    if not isinstance(entry, dict) or "to" not in entry or set(entry) - RULE:
        raise wrong(where, f"wants from and to; may have {', '.join(sorted(RULE))}")
    steps = entry.get("steps", "concat")
    steps = {"concat": None} if steps == "concat" else steps
    if steps != "last" and not (isinstance(steps, dict) and set(steps) <= {"concat", "pad"}):
        raise wrong(where, f"steps {steps!r} is none of concat, last, pad: VALUE")
    for key, allowed in (("view", FORMS), ("source_dtype", SOURCE_DTYPES), ("rows", ("last",))):
        if entry.get(key) is not None and entry[key] not in allowed:
            raise wrong(where, f"{key} {entry[key]!r} is none of {', '.join(allowed)}")
    return SimpleNamespace(
        where=where, pattern=pattern(where, entry), to=str(entry["to"]), view=entry.get("view"),
        scale=scale_of(where, entry.get("scale")), shard=shard_of(where, entry.get("shard", "replicated")),
        ops=operations(where, entry.get("ops", [])), steps=steps, rows=entry.get("rows"),
        source_dtype=entry.get("source_dtype"), optional=bool(entry.get("optional", False)))


def load(path):
    try:
        with open(path, "rb") as f:
            raw = f.read(1 << 20)
        top = yaml.safe_load(raw)
    except OSError as error:
        raise Refused(3, f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(path, f"no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(top, dict) or set(top) - TOP or top.get("map") != "dsf-import-1":
        raise wrong(path, f"wants map: dsf-import-1 and of {', '.join(sorted(TOP))} nothing else")
    names = top.get("names", r"(?P<name>.*)")
    names = [expression(path, n) for n in (names if isinstance(names, list) else [names])]
    if any("name" not in n.groupindex for n in names):
        raise wrong(path, "names: every expression wants a group (?P<name>...)")
    lists = {key: top.get(key) or [] for key in ("inputs", "taps", "ignore")}
    if any(not isinstance(v, list) for v in lists.values()):
        raise wrong(path, "inputs, taps and ignore want lists")
    rules = {key: [rule_of(f"{path}: {key}[{i}]", e) for i, e in enumerate(lists[key])] for key in ("inputs", "taps")}
    for rule in rules["inputs"]:
        if rule.to not in INPUTS:
            raise wrong(rule.where, f"to: {rule.to} is none of {', '.join(INPUTS)}")
    for rule in rules["taps"]:
        if not Model.knows(rule.to):
            raise wrong(rule.where, f"to: {rule.to} is no tap of the schema")
    ignore = [pattern(f"{path}: ignore[{i}]", e if isinstance(e, dict) else {"from": e})
              for i, e in enumerate(lists["ignore"])]
    return SimpleNamespace(path=path, engine=str(top.get("engine", "another engine")), names=names, ignore=ignore,
                           inputs=rules["inputs"], taps=rules["taps"], digest=hashlib.sha256(raw).hexdigest())
