"""Command line of import_dump.py. Exit status: 0 written, 1 the dump does not fit, 2 usage or map, 3 could not read."""

import argparse
import json
import os
import sys

import numpy as np

from . import Refused, mapfile, output
from .assemble import Importer, Matching
from .schema import Model
from .sources import tensors_of

SHOWN = 20  # names of a list that the text report shows


def arguments(argv):
    p = argparse.ArgumentParser(
        prog="import_dump.py", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Turns a dump of another engine (.npz, .safetensors, .pt; files or folders) into a file of schema\n"
                    "dsv41-dump-1, which dsf diff compares like any other.",
        epilog="example:\n"
               "  tools/import_dump.py DUMP --map tools/maps/transformers-v41.yaml --config MODEL -o theirs.h5\n"
               "  dsf diff theirs.h5 ours.h5")
    p.add_argument("inputs", nargs="+", metavar="DUMP", help="a folder or a file")
    p.add_argument("--map", metavar="MAP.yaml", help="which tensor is which tap (tools/maps, IMPORT.md)")
    p.add_argument("--config", metavar="MODEL", help="the model's folder or its config.json")
    p.add_argument("-o", "--output", metavar="OUT.h5")
    p.add_argument("--ids-file", metavar="FILE", help="token ids of the prompt: JSON list, numbers in text, or .npy")
    p.add_argument("--steps", metavar="A..B", help="only these steps of the dump (warm-up runs left out)")
    p.add_argument("--prompt-length", type=int, metavar="N", help="tokens of the prompt, where decoded ones follow")
    p.add_argument("--model-name", metavar="NAME", help="root attribute model; default: the folder of --config")
    p.add_argument("--checkpoint-digest", metavar="HEX", default="unknown", help="root attribute; default: unknown")
    p.add_argument("--notes", metavar="TEXT", default="", help="root attribute")
    p.add_argument("--strict", action="store_true", help="exit 1 when a tensor is unmapped or a mapped tap absent")
    p.add_argument("--list", action="store_true", help="print the tensors found, with what the map makes of them")
    p.add_argument("--dry-run", action="store_true", help="do all checks, write nothing")
    p.add_argument("--json", action="store_true", help="the report as JSON")
    return p.parse_args(argv)


def steps_of(text):
    if text is None:
        return None
    first, dots, last = text.partition("..")
    last = last if dots else first
    if not first.isdecimal() or not last.isdecimal():
        raise Refused(2, f"--steps {text}: A..B wanted")
    return int(first), int(last)


def read_ids(path):
    try:
        if path.endswith(".npy"):
            ids = np.load(path, allow_pickle=False).reshape(-1)
        else:
            with open(path, encoding="utf-8") as f:
                words = f.read().replace("[", " ").replace("]", " ").replace(",", " ").split()
            ids = np.array([int(w) for w in words], np.int64)
    except OSError as error:
        raise Refused(3, f"{path}: {error.strerror}") from None
    except (ValueError, OverflowError) as error:
        raise Refused(3, f"{path}: no token ids: {error}") from None
    return ids


def list_tensors(tensors, matching):
    place = {}
    for path, steps in (matching.parts if matching else {}).items():
        for ranks in steps.values():
            for tensor in ranks.values():
                place.setdefault(tensor.name, []).append(path)
    for t in tensors:
        to = "  -> " + ", ".join(place[t.name]) if t.name in place else ""
        print(f"{t.name}  {t.dtype} {list(t.shape)}{to}")


def dry(importer, model):
    """What writing does, without the file."""
    paths = [p for p in importer.m.parts if model.tap(p)]
    for path in paths:
        importer.tap(path)
    return len(paths)


def root_attributes(args, mapping, model, importer):
    config = output.ascii_json(model.text)
    if len(config) > 60000:
        raise Refused(3, f"{args.config}: {len(config)} bytes, an attribute holds 60000")
    return {"schema": "dsv41-dump-1", "producer": f"{mapping.engine}; imported by import_dump.py",
            "model": args.model_name or model.name, "config_json": config, "notes": args.notes, "mode": "exact",
            "backend": mapping.engine, "variants": f"imported by {os.path.basename(mapping.path)}",
            "checkpoint_digest": args.checkpoint_digest, "plan_digest": f"map {mapping.digest}",
            "prompt_length": importer.n if args.prompt_length is None else args.prompt_length}


def tell(report):
    def some(title, items, line):
        if items:
            print(f"{title}: {len(items)}")
            for item in items[:SHOWN]:
                print(f"  {line(item)}")
            if len(items) > SHOWN:
                print(f"  and {len(items) - SHOWN} more (--json lists all)")

    out = report["output"] or "nothing written (dry run)"
    print(f"{out}: {report['taps']} taps, {report['rows']} rows of {report['tokens']} tokens, "
          f"{report['steps']} steps, {report['ranks']} ranks; {report['ignored']} tensors ignored")
    some("not mapped", report["unmapped"], lambda t: f"{t['name']}  {t['dtype']} {t['shape']}: {t['why']}")
    some("mapped, but not in the dump", report["absent"], str)
    some("values finer than the tap's type, kept and marked f32", report["off_grid"], str)


def run(args):
    tensors = tensors_of(args.inputs)
    if args.list and not args.map:
        list_tensors(tensors, None)
        return 0
    if not args.map or not args.config or not (args.output or args.dry_run or args.list):
        raise Refused(2, "--map, --config and -o (or --dry-run, --list) are wanted; --help tells more")
    model, mapping = Model(args.config), mapfile.load(args.map)
    matching = Matching(mapping, tensors, model, steps_of(args.steps))
    if args.list:
        list_tensors(tensors, matching)
        return 0
    importer = Importer(matching, model, read_ids(args.ids_file) if args.ids_file else None)
    if not any(model.tap(p) for p in matching.parts):
        raise Refused(1, f"{', '.join(args.inputs)}: no tensor is a tap by {args.map} (--list shows the names)")
    absent = sorted({p for rule in mapping.taps if not rule.optional for p in model.instances(rule.to)} -
                    set(matching.parts))
    report = {"schema": "dsf-import-1", "output": None, "engine": mapping.engine, "model": model.name, "taps": 0,
              "rows": len(importer.positions), "tokens": importer.n, "ranks": matching.ranks,
              "steps": len({step for _, step, _ in matching.named}), "ignored": matching.ignored,
              "unmapped": matching.unmapped, "absent": absent, "off_grid": importer.off_grid}
    failed = args.strict and bool(matching.unmapped or absent)
    if args.dry_run or failed:
        report["taps"] = dry(importer, model)
    else:
        report["output"] = args.output
        report["taps"] = output.write(args.output, root_attributes(args, mapping, model, importer), importer, model)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        tell(report)
    return int(failed)


def main(argv=None):
    try:
        return run(arguments(argv))
    except Refused as refused:
        print(f"import_dump.py: {refused}", file=sys.stderr)
        return refused.code
    except BrokenPipeError:
        return 3
