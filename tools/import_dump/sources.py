"""Files of other engines as lists of named tensors. Nothing in them is executed; every size is checked first.

A tensor's name is FILE:KEY, FILE relative to the given folder without its ending, KEY the name inside the file
(nothing for a .pt that holds one tensor). Formats that NumPy lacks travel as bits: `form` says how to read them.
"""

import functools
import json
import math
import os
import struct
import zipfile
import zlib

import numpy as np

from . import Refused

MAX_HEADER = 100 << 20
MAX_TENSOR = 8 << 30
ENDINGS = (".npz", ".safetensors", ".pt", ".pth")
# What reading a broken .npz raises, an encrypted one and one with other compressions included.
UNREADABLE = (ValueError, EOFError, OSError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)
# An .npz key may end with one of these: the array holds the bits of that format.
FORMS = ("bf16", "e4m3", "e5m2", "e8m0", "e2m1")
SAFETENSORS = {
    "BOOL": ("?", None), "U8": ("<u1", None), "I8": ("<i1", None), "U16": ("<u2", None), "I16": ("<i2", None),
    "U32": ("<u4", None), "I32": ("<i4", None), "U64": ("<u8", None), "I64": ("<i8", None), "F16": ("<f2", None),
    "F32": ("<f4", None), "F64": ("<f8", None), "BF16": ("<u2", "bf16"), "F8_E4M3": ("<u1", "e4m3"),
    "F8_E5M2": ("<u1", "e5m2"), "F8_E8M0": ("<u1", "e8m0"), "F4": ("<u1", "e2m1"),
}


class Tensor:
    """One array of one file, read when asked for."""

    def __init__(self, name, file, key, shape, dtype, form, read):
        self.name, self.file, self.key = name, file, key
        self.shape, self.dtype, self.form, self.load = tuple(shape), dtype, form, read

    def where(self):
        return f"{self.file}: {self.key or 'the tensor'}"


def broken(path, text):
    return Refused(3, f"{path}: {text}")


def check_size(path, key, shape, item):
    size = math.prod(shape) * item
    if any(d < 0 for d in shape) or size > MAX_TENSOR:
        raise broken(path, f"{key}: shape {list(shape)}: {size} bytes, at most {MAX_TENSOR} at once")
    return size


# ---- .npz -------------------------------------------------------------------------------------------------------

def npy_header(path, key, f):
    """(shape, fortran order, dtype) of a .npy stream, whose pickles are refused."""
    try:
        version = np.lib.format.read_magic(f)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(f)
    except (ValueError, KeyError, EOFError) as error:
        raise broken(path, f"{key}: not an array: {error}") from None
    if dtype.hasobject:
        raise broken(path, f"{key}: an array of Python objects (a pickle) is refused")
    if dtype.fields or dtype.subdtype or dtype.kind not in "biufV" or dtype.kind == "V" and dtype.itemsize > 2:
        raise broken(path, f"{key}: element type {dtype} is no number")
    return shape, fortran, dtype


def npz_array(path, key, member):
    with zipfile.ZipFile(path) as z, z.open(member) as f:
        try:
            array = np.lib.format.read_array(f, allow_pickle=False)
        except UNREADABLE as error:
            raise broken(path, f"{key}: {error}") from None
    return array.view(f"<u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def npz_tensors(path, stem):
    found = []
    try:
        with zipfile.ZipFile(path) as z:
            for info in z.infolist():
                key = info.filename.removesuffix(".npy")
                with z.open(info) as f:
                    shape, _, dtype = npy_header(path, key, f)
                    head = f.tell()
                size = check_size(path, key, shape, dtype.itemsize)
                if head + size != info.file_size:
                    raise broken(path, f"{key}: shape {list(shape)} takes {size} bytes, {info.file_size - head} there")
                name, _, form = key.rpartition(":")
                name, form = (name, form) if form in FORMS else (key, None)
                found.append(Tensor(f"{stem}:{name}", path, name, shape, form or str(dtype), form,
                                    lambda k=key, m=info.filename: npz_array(path, k, m)))
    except UNREADABLE as error:
        raise broken(path, f"not a readable .npz: {error}") from None
    return found


# ---- .safetensors -----------------------------------------------------------------------------------------------

def unique(pairs):
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def safetensors_header(path):
    """(table of tensors, offset of the data, bytes of data)."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        head = f.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if len(head) < 8 or length > min(MAX_HEADER, size - 8):
            raise broken(path, f"header of {length} bytes in a file of {size}, at most {MAX_HEADER}")
        try:
            table = json.loads(f.read(length), object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise broken(path, f"header: {error}") from None
    if not isinstance(table, dict):
        raise broken(path, "header is no JSON object")
    table.pop("__metadata__", None)
    return table, 8 + length, size - 8 - length


def safetensors_entry(path, key, entry, data):
    """(dtype, form, shape, begin, end, stored shape), checked."""
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError):
        raise broken(path, f"{key}: wants dtype, shape and two data_offsets") from None
    if not isinstance(code, str) or code not in SAFETENSORS:
        raise broken(path, f"{key}: dtype {code!r} is not known")
    if any(type(v) is not int or v < 0 for v in numbers):
        raise broken(path, f"{key}: shape {shape} and offsets {begin}, {end} must be counts")
    dtype, form = SAFETENSORS[code]
    stored = list(shape)
    if code == "F4":
        if not shape or shape[-1] % 2:
            raise broken(path, f"{key}: shape {shape}: two F4 values share a byte")
        stored[-1] //= 2
    want = check_size(path, key, stored, np.dtype(dtype).itemsize)
    if end > data or end - begin != want:
        raise broken(path, f"{key}: offsets {begin}..{end} of {data} bytes, shape {shape} takes {want}")
    return dtype, form, shape, begin, end, stored


def safetensors_tensors(path, stem):
    table, start, data = safetensors_header(path)
    found, spans = [], []
    for key, entry in table.items():
        dtype, form, shape, begin, end, stored = safetensors_entry(path, key, entry, data)
        spans.append((begin, end, key))

        def load(dtype=dtype, stored=stored, begin=begin):
            return np.fromfile(path, dtype, math.prod(stored), offset=start + begin).reshape(stored)

        found.append(Tensor(f"{stem}:{key}", path, key, stored if form == "e2m1" else shape,
                            form or np.dtype(dtype).name, form, load))
    at = 0
    for begin, end, key in sorted(spans):
        if begin != at:
            raise broken(path, f"{key}: begins at {begin}, the tensor before it ends at {at}")
        at = end
    if at != data:
        raise broken(path, f"the tensors end at {at}, the data at {data}")
    return found


# ---- torch ------------------------------------------------------------------------------------------------------

@functools.lru_cache(64)
def torch_map(path):
    """Content of a file whose tensors stay on disk until they are used. Raises what torch.load raises."""
    import torch
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def torch_load(path):
    """Plain tensors in dicts and lists. weights_only: a pickle that would run code is refused by PyTorch."""
    try:
        import torch
    except ImportError:
        raise broken(path, "reading .pt needs PyTorch, which is not installed (or save .npz: IMPORT.md)") from None
    try:
        return torch, torch_map(path)
    except Exception as first:  # old files cannot be mapped; anything else fails again, with its reason
        try:
            return torch, torch.load(path, map_location="cpu", weights_only=True)
        except Exception:
            reason = str(first).strip().splitlines()
            why = reason[0] if reason else repr(first)
            raise broken(path, f"refused by torch.load(weights_only=True): {why}") from None


def torch_leaves(value, key=""):
    """(key, tensor) of everything that is a tensor."""
    if hasattr(value, "untyped_storage"):
        yield key, value
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for k, v in items:
            yield from torch_leaves(v, f"{key}.{k}" if key else str(k))


def torch_array(torch, tensor):
    forms = {"torch.bfloat16": (torch.int16, "<u2")}
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"):
        forms[f"torch.{name}"] = (torch.uint8, "<u1")
    tensor = tensor.detach().contiguous()
    view = forms.get(str(tensor.dtype))
    return tensor.view(view[0]).numpy().view(view[1]) if view else tensor.numpy()


TORCH_FORMS = {"torch.bfloat16": "bf16", "torch.float8_e4m3fn": "e4m3", "torch.float8_e5m2": "e5m2",
               "torch.float8_e8m0fnu": "e8m0", "torch.float4_e2m1fn_x2": "e2m1"}


def torch_tensors(path, stem):
    torch, content = torch_load(path)
    found = []
    for key, tensor in torch_leaves(content):
        name, dtype = f"{stem}:{key}" if key else stem, str(tensor.dtype)
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
            raise broken(path, f"{key or 'the tensor'}: {dtype}, layout {tensor.layout}: only plain tensors are read")
        form = TORCH_FORMS.get(dtype)
        check_size(path, key, tensor.shape, tensor.element_size())

        def load(key=key):
            torch, content = torch_load(path)
            return torch_array(torch, dict(torch_leaves(content))[key])

        found.append(Tensor(name, path, key, tensor.shape, form or dtype.removeprefix("torch."), form, load))
    return found


READERS = {".npz": npz_tensors, ".safetensors": safetensors_tensors, ".pt": torch_tensors, ".pth": torch_tensors}


def files_of(inputs):
    """(path, name without ending) of every file of a known kind, in name order."""
    for given in inputs:
        if os.path.isdir(given):
            for folder, folders, names in os.walk(given):
                folders.sort()
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    stem, ending = os.path.splitext(os.path.relpath(path, given))
                    if ending in ENDINGS:
                        yield path, stem.replace(os.sep, "/")
        elif os.path.splitext(given)[1] in ENDINGS and os.path.exists(given):
            yield given, os.path.splitext(os.path.basename(given))[0]
        else:
            raise broken(given, "no such file or folder" if not os.path.exists(given) else
                         f"not one of {', '.join(ENDINGS)}")


def tensors_of(inputs):
    found = []
    for path, stem in files_of(inputs):
        try:
            found += READERS[os.path.splitext(path)[1]](path, stem)
        except OSError as error:
            raise broken(path, error.strerror) from None
    if not found:
        raise Refused(3, f"{', '.join(inputs)}: no tensors in files {', '.join(ENDINGS)}")
    return found
