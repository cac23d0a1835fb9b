#!/usr/bin/python3
"""Command line of the reference model. `run.py COMMAND --help` tells the options.

Exit status: 0 good, 1 the answer is no, 2 usage, 3 could not.
"""

import argparse
import os
import re
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy loads its BLAS
    os.environ.setdefault(_name, "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import floor
import manifest
import mini
from dump import Golden
from model import Inputs, Model
from numerics import ORDERS, Arith
from record import write_dump


def read_ids(args):
    if args.inputs_from:
        return Golden(args.inputs_from).inputs()
    text = args.ids
    if args.ids_file:
        with open(args.ids_file, encoding="ascii") as f:
            text = f.read()
    ids = [int(word) for word in re.split(r"[\s,]+", text.strip()) if word]
    if not ids:
        raise ValueError("no token ids given")
    return Inputs(ids)


def cmd_dump(args):
    m = Model(args.model, Arith(args.precision, args.order))
    write_dump(m, read_ids(args), args.output, args.taps == "small", args.notes, args.draft_all)
    return 0


def find_floor(args):
    """--floor, else noise_floor.json beside the golden file or one folder up."""
    here = os.path.dirname(os.path.abspath(args.golden))
    places = [os.path.join(here, up, "noise_floor.json") for up in (".", "..")]
    for path in (args.floor, *places):
        if path and os.path.exists(path):
            return path
    raise FileNotFoundError(f"no noise_floor.json beside {args.golden}; name one with --floor")


def one_shot_lists(args, golden):
    """A file of one N-token prefill whose rows differ from those of shorter ones says so by holding
    `logits_oneshot` beside `logits`; files of an engine (attribute `mode`) have per-row lists."""
    if args.lists == "auto":
        return "logits_oneshot" in golden and "mode" not in golden.file.attrs
    return args.lists == "oneshot"


def cmd_compare(args):
    m = Model(args.model, Arith(args.precision, args.order))
    golden = Golden(args.golden, m.ar.dtype)
    mode = "per_layer_from_exact_input" if args.command == "injected" else "free_running"
    _, report = floor.run(m, golden, mode, one_shot_lists(args, golden))
    print(report.table())
    if args.command == "free":
        return 0
    over = report.over(floor.load_limits(find_floor(args)))
    print("\n".join(over) if over else f"{report.compared()} comparisons within the limits")
    return 1 if over or not report.compared() else 0


def cmd_floor(args):
    floor.write(Model(args.model), args.prompts, args.output, args.accept_growth)
    return 0


def cmd_mini(args):
    m = Model(args.model)
    m.cfg.name = os.path.basename(os.path.normpath(args.outdir))  # wherever the checkpoint lies
    if args.search:
        mini.search(m, args.search)
    else:
        mini.make(m, args.outdir, args.accept_growth)
    return 0


def parser():
    p = argparse.ArgumentParser(prog="run.py", description=__doc__)
    sub = p.add_subparsers(dest="command", required=True)

    def command(name, function, text):
        c = sub.add_parser(name, help=text, description=text)
        c.set_defaults(function=function)
        return c

    def arithmetic(c):
        c.add_argument("--precision", choices=("f64", "f32"), default="f64")
        c.add_argument("--order", choices=ORDERS, default="forward", help="of float32 sums")

    def growth(c):
        c.add_argument("--accept-growth", action="store_true",
                       help=f"replace a floor by one that grew by more than {floor.MOST_GROWTH}")

    c = command("dump", cmd_dump, "Run a prompt and write all taps.")
    c.add_argument("model")
    group = c.add_mutually_exclusive_group(required=True)
    group.add_argument("--ids", help="decimal ids, separated by commas or spaces")
    group.add_argument("--ids-file")
    group.add_argument("--inputs-from", metavar="F.h5", help="token_ids, image_mask and embed of a dump")
    c.add_argument("-o", "--output", required=True)
    c.add_argument("--taps", choices=("all", "small"), default="all")
    c.add_argument("--draft-all", action="store_true", help="also a draft pass after every position")
    c.add_argument("--notes", default="row t is the last row of a prefill of t+1 tokens")
    arithmetic(c)

    for name, text in (("injected", "Run every layer on golden inputs; gate by the noise floor."),
                       ("free", "Run from token ids and print the distance from a golden dump.")):
        c = command(name, cmd_compare, text)
        c.add_argument("model")
        c.add_argument("golden")
        c.add_argument("--floor", help="noise_floor.json (default: beside the dump or one folder up)")
        c.add_argument("--lists", choices=("auto", "row", "oneshot"), default="auto",
                       help="attention lists as of prefills of t+1 tokens, or of one prefill of all")
        arithmetic(c)

    c = command("floor", cmd_floor, "Measure the noise floor over the dumps of a folder.")
    c.add_argument("model")
    c.add_argument("--prompts", required=True, metavar="DIR")
    c.add_argument("-o", "--output", required=True)
    growth(c)

    c = command("mini", cmd_mini, "Write the golden dumps and the noise floor of the mini model.")
    c.add_argument("model")
    c.add_argument("outdir")
    growth(c)
    c.add_argument("--search", type=int, metavar="K", help="instead rank K prompt seeds by selection flips")

    c = command("manifest", manifest.command, "Refresh golden/MANIFEST.json, or check it.")
    c.add_argument("--check", action="store_true", help="write nothing; exit 1 if a line is missing or wrong")
    return p


def main(argv=None):
    args = parser().parse_args(argv)
    try:
        return args.function(args)
    except floor.Grown as answer:
        print(answer, file=sys.stderr)
        return 1
    except (OSError, KeyError, ValueError) as error:
        print(f"run.py {args.command}: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
