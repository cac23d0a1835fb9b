#!/usr/bin/python3
"""Turns dumps of other engines (.npz, .safetensors, .pt) into a file of schema dsv41-dump-1.

See IMPORT.md beside this file. Needs Debian's python3-numpy, python3-h5py and python3-yaml; PyTorch only for .pt.
"""

import sys

from import_dump.cli import main

if __name__ == "__main__":
    sys.exit(main())
