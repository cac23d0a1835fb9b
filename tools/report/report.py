"""dsf report: one self-contained page from results. `dsf report --help` tells the use; exit 0 when the page
is written, 2 for usage, 3 when it could not be."""

import argparse
import os
import sys

COULD_NOT = 3


def parse(words):
    p = argparse.ArgumentParser(prog="dsf report", add_help=False)
    p.add_argument("results", nargs="*")
    p.add_argument("-o", dest="out", required=True)
    p.add_argument("--title", default="")
    p.add_argument("--reference")
    p.add_argument("--ours")
    p.add_argument("--tap", action="append", default=[])
    p.add_argument("--compare", action="append", default=[])  # judgements of the pairs: standard input
    return p.parse_args(words)


def write(path, text):
    """Whole or not at all."""
    part = path + ".part"
    try:
        with open(part, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except BaseException:  # a signal too
        if os.path.exists(part):
            os.unlink(part)
        raise


def main(words):
    try:
        import jinja2  # noqa: F401: asked for here, so that its absence is told in words
    except ImportError:
        print(f"dsf report: {sys.executable} has no Jinja2: apt install python3-jinja2, or name another Python in "
              "DSF_PYTHON", file=sys.stderr)
        return COULD_NOT
    import page
    import results
    import view

    sys.stdout.reconfigure(errors="backslashreplace")  # a file name need not be UTF-8
    o = parse(words)
    try:
        for path in filter(None, (*o.results, *o.compare, o.reference, o.ours)):
            if os.path.exists(path) and os.path.exists(o.out) and os.path.samefile(path, o.out):
                raise results.Refused(f"{o.out}: input and output are one file")
        read = [results.read(path) for path in o.results]
        model = view.build(read, o.title, o.compare and (o.compare, sys.stdin))
        if o.reference or o.ours:
            import dumps
            view.add_dumps(model, dumps.compare(o.reference, o.ours, o.tap, view.tap_hints(model)))
        text = page.render(model)
        write(o.out, text)
    except results.Refused as e:
        print(f"dsf report: {e}", file=sys.stderr)
        return COULD_NOT
    except OSError as e:
        print(f"dsf report: {e.filename or o.out}: {e.strerror}", file=sys.stderr)
        return COULD_NOT
    except KeyboardInterrupt:
        print("dsf report: stopped by a signal", file=sys.stderr)
        return COULD_NOT
    size = len(text.encode("utf-8"))
    print(f"{o.out}: {model['verdict']['words']}; {size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main(sys.argv[1:]))
