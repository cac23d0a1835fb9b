"""Import of foreign dumps: sources (files), mapfile (YAML), transforms, assemble (taps), output (HDF5), cli."""


class Refused(Exception):
    """An answer of no. `code` is the exit status: 1 the dump does not fit, 2 usage or map, 3 could not read."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code
