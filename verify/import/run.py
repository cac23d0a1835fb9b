#!/usr/bin/python3
"""Runs the tests of tools/import_dump.py, all or those named (test_import.Planted). Tells skips by name, a count."""

import os
import sys
import unittest


def main():
    loader = unittest.defaultTestLoader
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(os.path.dirname(os.path.abspath(__file__)))
    result = unittest.TextTestRunner(stream=sys.stdout).run(suite)
    for case, reason in result.skipped:
        print(f"skip {case.id()}: {reason}")
    print(f"= {result.testsRun - len(result.skipped)} tests")
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
