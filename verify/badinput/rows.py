"""The table of bad inputs: how each is made, the command, the exit code, words of the message.

A row is (name, make, command, exit, words). `make` is called with the row's folder `d`, which holds a
model `d.model` to spoil (files are links: write through `d`). In commands {m} is that model, {d} the
folder, {mini} the sound model, {g} a sound dump of it, {tiny} another model, {t} its dump. Words: each
must be in what the command says. Exit codes: product.md 3 (1 the answer is no, 2 usage, 3 could not).
"""

import json
import os
import struct

ROWS = []


def row(name, command, code, *words, make=None, after=None, needs=None, **how):
    """how: stdin, stdout, limit (bytes a file may have), signal (once it works: see started), ready (the stream that tells it, or tmp:
    there are temporaries), tmp (TMPDIR, within {d}),
    kept (a half-written dump may stay: --recover makes a file of it)."""
    ROWS.append((name, make, command.split(" "), code, words, after, needs, how))


# ---- how inputs are spoilt ----

def config(path, value):
    """Sets (or with value ... removes) one field of config.json; path "text_config.head_dim"."""
    def make(d):
        data = json.loads(d.read("config.json"))
        at = data
        *folders, last = path.split(".")
        for key in folders:
            at = at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value
        d.write("config.json", json.dumps(data))
    return make


def replaced(name, old, new):
    def make(d):
        text = d.read(name)
        assert old in text, (name, old)
        d.write(name, text.replace(old, new, 1))
    return make


def whole(name, content):
    return lambda d: d.write(name, content)


def absent(name):
    return lambda d: d.remove(name)


def cut(name, keep):
    """Keeps a part (below 1) or a number of bytes of a file."""
    def make(d):
        data = d.read_bytes(name)
        d.write(name, data[:int(len(data) * keep) if keep < 1 else keep])
    return make


SHARD = "model-00001-of-00005.safetensors"
INDEX = "model.safetensors.index.json"
TOKENS = "tokenizer.json"


def header(edit):
    """Rewrites the header of the first shard; its length is kept right."""
    def make(d):
        data = d.read_bytes(SHARD)
        n = struct.unpack("<Q", data[:8])[0]
        head = edit(json.loads(data[8:8 + n]))
        text = head if isinstance(head, bytes) else json.dumps(head).encode()
        d.write(SHARD, struct.pack("<Q", len(text)) + text + data[8 + n:])
    return make


def header_length(n):
    return lambda d: d.write(SHARD, struct.pack("<Q", n) + d.read_bytes(SHARD)[8:])


def tensor(field, value):
    """One field of the entry of embed.weight."""
    def edit(head):
        head["embed.weight"][field] = value(head["embed.weight"][field])
        return head
    return header(edit)


def index(edit):
    def make(d):
        data = json.loads(d.read(INDEX))
        edit(data)
        d.write(INDEX, json.dumps(data))
    return make


def scale_255(d):
    """A ue8m0 scale that is no number, in the first shard that has scales."""
    for shard in sorted(f for f in d.files() if f.endswith(".safetensors")):
        data = bytearray(d.read_bytes(shard))
        n = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(bytes(data[8:8 + n])).items():
            if name.endswith(".scale"):
                data[8 + n + entry["data_offsets"][0]] = 255
                d.write(shard, bytes(data))
                return
    raise AssertionError("no scales")


def tokenizer(edit):
    def make(d):
        data = json.loads(d.read(TOKENS))
        edit(data)
        d.write(TOKENS, json.dumps(data, ensure_ascii=False))
    return make


def put(name, content):
    """A file beside the model."""
    return lambda d: d.put(name, content)


def dump(edit):
    """A copy of the sound dump at {d}/bad.h5, changed with h5py."""
    def make(d):
        import h5py
        d.put("bad.h5", open(d.golden, "rb").read())
        with h5py.File(d.path("bad.h5"), "r+") as f:
            edit(f)
    return make


def dump_cut(keep):
    def make(d):
        data = open(d.golden, "rb").read()
        d.put("bad.h5", data[:int(len(data) * keep)])
    return make


def set_at(f, name, at, value):
    x = f[name][...]
    x[at] = value
    f[name][...] = x


def drop(name):
    return lambda f: f.pop(name)


RUN = "run {m} --ids 5,6,7 -n 2 --quiet"
GRAFT = "graft {mini} {d}/bad.h5"

# ---- shards ----

row("shard absent", RUN, 3, SHARD, make=absent(SHARD))
row("shard empty", RUN, 3, SHARD, "0 bytes", make=whole(SHARD, b""))
row("shard shorter than a length", RUN, 3, SHARD, make=cut(SHARD, 7))
row("shard cut in the header", RUN, 3, SHARD, make=cut(SHARD, 100))
row("shard cut in the data", RUN, 3, SHARD, make=cut(SHARD, 0.9))
row("shard one byte short", RUN, 3, SHARD, make=lambda d: d.write(SHARD, d.read_bytes(SHARD)[:-1]))
row("shard with a tail", RUN, 3, SHARD, make=lambda d: d.write(SHARD, d.read_bytes(SHARD) + b"more"))
row("header longer than the file", RUN, 3, SHARD, make=header_length(1 << 40))
row("header of 2^64-1 bytes", RUN, 3, SHARD, make=header_length((1 << 64) - 1))
row("header of no bytes", RUN, 3, SHARD, make=header_length(0))
row("header not JSON", RUN, 3, SHARD, make=header(lambda h: b"{]"))
row("header not UTF-8", RUN, 3, SHARD, make=header(lambda h: b'{"\xff\xfe": 1}'))
row("tensors overlap", RUN, 3, SHARD, "overlap", make=tensor("data_offsets", lambda o: [o[0] - 4096, o[1] - 4096]))
row("offsets descend", RUN, 3, "embed.weight", make=tensor("data_offsets", lambda o: [o[1], o[0]]))
row("offset past the end", RUN, 3, "embed.weight", make=tensor("data_offsets", lambda o: [o[0], 1 << 50]))
row("negative offset", RUN, 3, "embed.weight", make=tensor("data_offsets", lambda o: [-8, o[1]]))
row("shape that is not its bytes", RUN, 3, "embed.weight", make=tensor("shape", lambda s: [s[0] + 1, s[1]]))
row("shape that overflows", RUN, 3, "embed.weight", make=tensor("shape", lambda s: [1 << 62, 1 << 62]))
row("unknown dtype", RUN, 3, "embed.weight", "Q7", make=tensor("dtype", lambda t: "Q7"))
row("another dtype", RUN, 3, "embed.weight", make=tensor("dtype", lambda t: "F16"))
row("transposed tensor", RUN, 3, "embed.weight", make=tensor("shape", lambda s: s[::-1]))
row("scale that is no number", "info {m}", 1, "255", make=scale_255)
row("scale that is no number, verified", "verify {m} --suite contract", 1, "255", make=scale_255)

# ---- index ----

row("index absent", RUN, 3, INDEX, make=absent(INDEX))
row("index empty", RUN, 3, INDEX, make=whole(INDEX, b""))
row("index not JSON", RUN, 3, INDEX, make=whole(INDEX, b"{\"weight_map\": {"))
row("index without a map", RUN, 3, "weight_map", make=index(lambda i: i.pop("weight_map")))
row("index names an absent tensor", RUN, 3, "no.such", make=index(lambda i: i["weight_map"].update({"no.such": SHARD})))
row("index names an absent shard", RUN, 3, "model-99999", make=index(
    lambda i: i["weight_map"].update({"embed.weight": "model-99999-of-00005.safetensors"})))
row("index lacks a tensor", RUN, 3, "embed.weight", make=index(lambda i: i["weight_map"].pop("embed.weight")))
row("index leads out of the folder", RUN, 3, "..", make=index(
    lambda i: i["weight_map"].update({"embed.weight": "../../etc/passwd"})))
row("index of the wrong shard", RUN, 3, "embed.weight", make=index(
    lambda i: i["weight_map"].update({"embed.weight": "model-00002-of-00005.safetensors"})))
row("index names a tensor twice", RUN, 3, "embed.weight", make=replaced(
    INDEX, '"embed.weight"', f'"embed.weight": "{SHARD}", "embed.weight"'))

# ---- config.json ----

row("config absent", RUN, 3, "config.json", make=absent("config.json"))
row("config cut", RUN, 3, "config.json", make=cut("config.json", 0.5))
row("config with NaN", RUN, 3, "config.json", make=replaced("config.json", '"rms_norm_eps": 1e-20', '"rms_norm_eps": NaN'))
row("config number infinite", RUN, 3, "rms_norm_eps", make=replaced("config.json", '"rms_norm_eps": 1e-20', '"rms_norm_eps": 1e999'))
row("config number huge", RUN, 3, "hidden_size", make=config("text_config.hidden_size", 1 << 40))
row("config number negative", RUN, 3, "num_hidden_layers", "-3", make=config("text_config.num_hidden_layers", -3))
row("config number broken", RUN, 3, "head_dim", make=config("text_config.head_dim", 64.5))
row("config number as text", RUN, 3, "head_dim", make=config("text_config.head_dim", "64"))
row("config key absent", RUN, 3, "vocab_size", make=config("text_config.vocab_size", ...))
row("config key unknown", RUN, 3, "attention_magic", "accept", make=config("text_config.attention_magic", 7))
row("config key unknown in quantization", RUN, 3, "fast", make=config("quantization_config.fast", True))
row("config key unknown, accepted", RUN + " --accept-config attention_magic", 0, make=config("text_config.attention_magic", 7))
row("config key twice", RUN, 3, "head_dim", make=replaced("config.json", '"head_dim": 64,', '"head_dim": 64, "head_dim": 32,'))
row("config of another model", RUN, 3, "model_type", make=config("model_type", "llama"))
row("config of another quantisation", RUN, 3, "quant_method", make=config("quantization_config.quant_method", "awq"))
row("config contradicts itself", RUN, 3, "compress_ratios", make=config("text_config.num_hidden_layers", 9))
row("config contradicts the shards", RUN, 3, "contract", make=config("text_config.moe_intermediate_size", 128))
row("config with more experts chosen than there are", RUN, 3, "num_experts_per_tok", make=config("text_config.num_experts_per_tok", 9))
row("config with a token outside", RUN, 3, "eos_token_id", make=config("eos_token_id", 512))
row("config nested without end", RUN, 3, "config.json", make=whole("config.json", b"[" * 100000))
row("config is a folder", "run {d} --ids 1", 3, "config.json", make=lambda d: d.folder("config.json"))

# ---- tokenizer.json ----

row("tokenizer absent", RUN, 3, TOKENS, make=absent(TOKENS))
row("tokenizer cut", RUN, 3, TOKENS, make=cut(TOKENS, 0.5))
row("tokenizer of another kind", RUN, 3, TOKENS, "BPE", make=tokenizer(lambda t: t["model"].update(type="WordPiece")))
row("tokenizer without merges", RUN, 3, "merges", make=tokenizer(lambda t: t["model"].pop("merges")))
row("tokenizer with a merge of strangers", RUN, 3, TOKENS, make=tokenizer(lambda t: t["model"]["merges"].insert(0, "zzzz qqqq")))
row("tokenizer with an id outside", RUN, 3, TOKENS, make=tokenizer(lambda t: t["model"]["vocab"].update({"zzzz": 1 << 40})))
row("tokenizer with too few ids", RUN, 3, "vocab_size 512", make=tokenizer(
    lambda t: (t["added_tokens"].pop(), t["added_tokens"].pop())))
row("tokenizer of other classes", RUN, 3, "430 Engram classes", "429", make=config(
    "text_config.engram_compressed_vocab_size", 429))

# ---- prompts ----

row("id outside the vocabulary", "run {mini} --ids 5,512", 2, "512", "vocabulary")
row("negative id", "run {mini} --ids 5,-1", 2, "--ids", "no token id")
row("id beyond 32 bits", "run {mini} --ids 99999999999999999999", 2, "--ids")
row("ids that are words", "run {mini} --ids five", 2, "--ids", "byte 0")
row("an empty item among ids", "run {mini} --ids 1,,2", 2, "--ids: byte 2: no token id")
row("ids that end with a comma", "run {mini} --ids 1,2,", 2, "--ids: byte 4: no token id")
row("ids that begin with a comma", "dump {mini} --ids ,1 -o {d}/out.h5", 2, "--ids: byte 0: no token id")
row("an empty item among ids of a file", "run {mini} --ids-file {d}/ids", 2, "byte 4: no token id", make=put("ids", b"1 ,\n,2"))
row("ids file empty", "run {mini} --ids-file {d}/ids", 2, "no token ids", make=put("ids", b" \n"))
row("ids file absent", "run {mini} --ids-file {d}/none", 3, "none")
row("ids file of bytes", "run {mini} --ids-file {d}/ids", 2, "byte 2", make=put("ids", b"5,\x00\xff"))
row("no prompt", "run {mini}", 2, "--prompt", "0 given")
row("two prompts", "run {mini} --ids 1 --prompt x", 2, "2 given")
row("empty prompt", "run {mini} --prompt=", 2, "empty")
row("prompt not UTF-8", "run {mini} --prompt \udcff\udcfe", 2, "UTF-8")
row("prompt longer than the context", "run {mini} --ids 1,2,3,4 -n 1 --ctx 3", 2, "context holds 3")
row("context over the model's limit", "run {mini} --ids 1 --ctx 524289", 2, "524288")
row("context negative", "run {mini} --ids 1 --ctx -7", 2, "-7")
row("tokens to generate beyond 64 bits", "run {mini} --ids 1 -n 9223372036854775807", 2, "-n")
row("tokens to generate negative", "run {mini} --ids 1 -n -1", 2, "-n")
row("a plan larger than the machine", "plan {mini} --batch 65536 --ctx 524288", 1, "OVER by", "cache: main KV")
row("a plan larger than the memory given", "plan {mini} --memory 1M", 1, "OVER by", "the largest: ")
row("a reserve that leaves nothing", "plan {mini} --memory 1M --reserve 1MiB", 2, "leaves nothing")
row("memory that is no size", "plan {mini} --memory 139GB", 2, "--memory 139GB")
row("a line that no plan has", "plan {mini} --explain nothing", 2, "no line of the plan", "pass: values")
row("ranks of a host", "plan {mini} --ranks 2", 2, "with backend cuda")
row("a plan of nothing", "plan", 2, "give one of a model folder")
row("a plan of two models", "plan {mini} --preset full", 2, "give one of a model folder")
row("a plan of a preset that is not there", "plan --preset large", 2, "mini, tiny and full")
row("a plan of layers that are none", "plan --synthetic 3-1", 2, "layers like 0-17")
row("temperature negative", "run {mini} --ids 1 --temp -1", 2, "temperature")
row("temperature not a number", "run {mini} --ids 1 --temp nan", 2, "temperature")
row("top-p of nothing", "run {mini} --ids 1 --top-p 0", 2, "top_p")
row("chat not JSON", "run {mini} --chat {d}/chat", 3, "chat", make=put("chat", b"hello"))
row("chat without messages", "run {mini} --chat {d}/chat", 3, "messages", make=put("chat", b'{"model": "x"}'))
row("chat of an unknown role", "run {mini} --chat {d}/chat", 3, "wizard",
    make=put("chat", b'{"messages": [{"role": "wizard", "content": "x"}]}'))
row("chat with content that is a number", "run {mini} --chat {d}/chat", 3, "content",
    make=put("chat", b'{"messages": [{"role": "user", "content": 7}]}'))
row("chat from a closed input", "run {mini} --chat -", 3, "not JSON", stdin=b"")
row("model absent", "run {d}/none --ids 1", 3, "config.json")
row("model is a file", "run {g} --ids 1", 3, "config.json")

# ---- options ----

row("no command", "", 2, "usage")
row("unknown command", "runn {mini}", 2, "meant run")
row("unknown option", "run {mini} --idz 1", 2, "--ids")
row("option without its value", "run {mini} --ids", 2, "--ids needs")
row("integer that is none", "run {mini} --ids 1 -n x", 2, "no integer")
row("one argument too many", "run {mini} {mini} --ids 1", 2, "too many")
row("unknown prefill", "run {mini} --ids 1 --prefill fast", 2, "exact, cone or replay")
row("unknown backend", "run {mini} --ids 1 --backend tpu", 2, "auto, cpu, ref or cuda")
row("backend of a later version", "run {mini} --ids 1 --backend cuda", 3, "CUDA")
row("draft of a later version", "run {mini} --ids 1 --draft 4", 3, "drafting loop")
row("command of a later version", "serve {mini}", 3, "serve")
row("empty item of a list", "diff {g} {g} --only attn/q,,attn/y", 2, "--only: an empty item")
row("list of nothing", "dump {mini} --ids 1 -o {d}/out.h5 --taps=", 2, "--taps: an empty item")
row("tokens to decode negative", "dump {mini} --ids 1 -o {d}/out.h5 --decode -1", 2, "--decode -1: 0 to 2147483647")
row("range beyond 64 bits", "dump {mini} --ids 1 -o {d}/out.h5 --positions 0-99999999999999999999", 2, "--positions 0-9999")
row("range with a sign", "dump {mini} --ids 1 -o {d}/out.h5 --layers +1-2", 2, "--layers +1-2")
row("rows of a range of words, reduce", "reduce --length 4 --rows 3- -- true {rows}", 2, "--rows 3-")
row("kernel mask of nothing", "run {mini} --ids 1 --variants fast", 2, "kernel mask")
row("threads out of range", "run {mini} --ids 1 --threads 5000", 2, "1 to 1024")
row("threads out of range, verify", "verify {mini} --suite memory --threads -3", 2, "threads")
row("threads beyond 32 bits, verify", "verify {mini} --suite memory --threads 4294967297", 2, "threads")
row("threads out of range, graft", "graft {mini} {g} --threads 5000", 2, "threads")
row("log level unknown", "run {mini} --ids 1 --log loud", 2, "loud")
row("batch of none", "plan {mini} --batch -1", 2, "slots -1")
row("layer range backwards", "dump {mini} --ids 1 -o {d}/out.h5 --layers 5-3", 2, "--layers 5-3")
row("layer range of words", "dump {mini} --ids 1 -o {d}/out.h5 --layers a-b", 2, "--layers")
row("layers that are not there", "dump {mini} --ids 1 -o {d}/out.h5 --layers 50-60", 2, "nothing")
row("positions that are not there", "dump {mini} --ids 1,2 -o {d}/out.h5 --positions 7-9", 2, "nothing")
row("taps that match nothing", "dump {mini} --ids 1 -o {d}/out.h5 --taps attn/nothing", 2, "nothing")
row("size limit of nothing", "dump {mini} --ids 1 -o {d}/out.h5 --max-bytes 0", 2, "--max-bytes")
row("dump over its limit", "dump {mini} --ids 1,2,3 -o {d}/out.h5 --max-bytes 4K", 3, "--max-bytes", "4096")
row("unknown suite", "verify {mini} --suite layerz", 2, "layerz", "--list")
row("soak without a length", "soak {mini}", 2, "--to N")
row("soak beyond the model", "soak {mini} --to 999999999", 2, "--to 999999999", "524288")
row("soak with a margin that no machine has", "soak {mini} --to 8 --margin 9000T", 2, "--margin", "bytes in all")
row("soak with a guard that no machine has", "soak {mini} --to 8 --guard 9000T", 2, "--guard", "bytes in all")
row("soak with a length beyond its ladder", "soak {mini} --to 8 --ladder 9", 2, "no length 9")
row("soak with cycles too short", "soak {mini} --to 8 --at 3", 2, "--at 3", "32")
row("soak with an unknown fault", "soak {mini} --to 8 --plant flood", 2, "flood", "temporary, leak or plan")
row("soak of no model", "soak {d}/none --to 8", 3, "config.json")
row("suite without golden data", "verify {mini} --suite layers", 3, "golden")
row("golden folder absent, suites by default", "verify {mini} --golden {d}/none --only ?o*", 0, "none: no such golden folder", "skip ")
row("golden folder absent, suite asked for", "verify {mini} --golden {d}/none --suite layers", 3, "none: no such golden folder")
row("golden folder absent, nothing else to check", "verify {mini} --golden {d}/none --only layers*", 3, "none: no such golden folder")
row("golden folder empty", "verify {mini} --golden {d} --suite layers", 3, "dump-pN.h5")
row("no check matches", "verify {mini} --suite contract --only zzz", 2, "no check is called \"zzz\"")

# ---- outputs ----

row("output not given", "dump {mini} --ids 1", 2, "-o")
row("output folder absent", "dump {mini} --ids 1 -o {d}/none/out.h5", 3, "none/out.h5")
row("output is a folder", "dump {mini} --ids 1 -o {d}", 3, "{d}")
row("output unwritable", "dump {mini} --ids 1 -o /proc/out.h5", 3, "/proc/out.h5")
# told before the work: the input that is not there either is not even looked for
row("output folder absent, graft", "graft {mini} {d}/none.h5 -o {d}/none/out.h5", 3, "none/out.h5")
row("output is a folder, graft", "graft {mini} {d}/none.h5 --json-out {d}", 3, "{d}: not a regular file")
row("output folder absent, diff", "diff {d}/none.h5 {g} --json-out {d}/none/x.json", 3, "none/x.json")
row("output unwritable, diff", "diff {d}/none.h5 {g} --json-out /proc/x.json", 3, "/proc/x.json")
row("output folder absent, bench", "bench decode {d}/none --json-out {d}/none/x.json", 3, "none/x.json")
row("format unknown, bench", "bench limits --format yaml", 2, "--format yaml: table, json")
row("repeats too few, bench", "bench limits --repeat 3", 2, "--repeat 3: 5 to")
row("no GPU at all, bench", "bench limits --gpus 0", 2, "0 GPUs: 1 to 1024")
row("rate without end, bench", "bench limits --rate inf", 2, "inf bytes a second: above 0, to 1e18")
row("batch without end, bench", "bench limits --batch 9223372036854775807", 2, "no number from 1 to")
row("depth without end, bench", "bench decode {mini} --at 9223372036854775807", 2, "no number from 1 to")
row("tokens without end, bench", "bench prefill {mini} --tokens 9223372036854775807", 2, "--tokens 9223372036854775807: 0 to")
row("least change is no number, bench", "bench op --least-change nan", 2, "--least-change nan")
row("a table without columns, bench", "bench limits --format sql", 2, "limits has table and json")
row("output without a name, bench", "bench limits --json-out=", 2, "the name of the output is empty")
row("output without a name, soak", "soak {mini} --to 8 --json-out=", 2, "the name of the output is empty")
row("depths fall, bench", "bench prefill {mini} --at 5,3", 2, "depth 3 after 5")
row("batch too large, bench", "bench decode {mini} --batch 1000", 2, "batch 1000: 1 to 256")
row("baseline program absent, bench", "bench op --op linear_g8 --shape 1,64,64 --baseline-program {d}/none", 3, "none: No such file")
row("baseline program of another kind, bench", "bench prefill {mini} --tokens 8 --baseline-program /bin/true", 3, "old program tells no case")
row("nothing to load, bench", "bench load {d}/none", 3, "none: not a folder")
row("not in this version, bench", "bench serve", 3, "no server")
row("output folder absent, soak", "soak {d}/none --to 8 --json-out {d}/none/x.json", 3, "none/x.json")
row("output folder absent, dump", "dump {d}/none --ids 1 -o {d}/none/out.h5", 3, "none/out.h5")
row("output folder absent, reduce", "reduce --ids 1,2 --ids-out {d}/none/x -- {d}/none/check {ids}", 3, "none/x: cannot")
row("output folder absent, case", "reduce {mini} {d}/none.h5 -o {d}/none/x.h5", 3, "none/x.h5")
row("output folder absent, report", "report {d}/none.json -o {d}/none/x.html", 3, "none/x.html")
row("output is the input, diff", "diff {g} {g} --json-out {g}", 2, "input and output are one file")
row("output is the input, graft", "graft {mini} {g} --json-out {d}/other.h5", 2, "input and output are one file",
    make=lambda d: os.symlink(d.golden, d.path("other.h5")))
row("output is the input, dump", "dump {mini} --ids-file {d}/ids -o {d}/ids", 2, "input and output are one file",
    make=put("ids", b"1 2 3"))
row("output is the input, report", "report {d}/x.json -o {d}/x.json", 2, "input and output are one file",
    make=put("x.json", b"{}"), after=lambda d: d.same("x.json", b"{}"))
row("output is the input by a hard link, report", "report {d}/x.json -o {d}/y.html", 2, "input and output are one file",
    make=lambda d: (d.put("x.json", b"{}"), os.link(d.path("x.json"), d.path("y.html"))), after=lambda d: d.same("x.json", b"{}"))
row("folder for temporaries absent", "graft {mini} {g}", 3, "{d}/none", "temporary", tmp="none")
row("disk full while dumping", "dump {mini} --ids 1,2,3,4,5,6 -o {d}/out.h5", 3, "out.h5", limit=200000, kept=True)
row("disk full at the end of a dump", "dump {mini} --ids 1,2,3 -o {d}/out.h5", 3, "--recover", limit=900000, kept=True,
    after=lambda d: d.dsf("dump", "--recover", d.path("out.h5.part")))
row("disk full while grafting", "graft {mini} {g} -o {d}/out.h5", 3, "out.h5", limit=200000, kept=True)
row("disk full while soaking", "soak {mini} --to 300 --cycles 0 --margin 0 --guard 0 --json-out {d}/x.json", 3, "x.json", "the run goes on", limit=20000)
row("disk full while making a model", "synth -o {d}/new", 3, "new", limit=100000)
row("standard output full, run", "run {mini} --ids 1,2 -n 3 --quiet", 3, "standard output", stdout="/dev/full")
row("standard output full, run as JSON", "run {mini} --ids 1,2 -n 3 --json", 3, "standard output", stdout="/dev/full")
row("standard output full, plan", "plan {mini} --steps", 3, "standard output", stdout="/dev/full")
row("standard output full, dump", "dump {mini} --ids 1 -o {d}/out.h5", 3, "standard output", stdout="/dev/full")
row("standard output full, verify", "verify {mini} --suite contract", 3, "standard output", stdout="/dev/full")
row("standard output full, graft", "graft {mini} {g}", 3, "standard output", stdout="/dev/full")
row("report unwritable", "verify {mini} --suite contract --json-out /proc/x.json", 3, "/proc/x.json")
row("model over a model", "synth -o {m}", 2, "--force")

# ---- dumps ----

row("dump absent", "diff {g} {d}/none.h5", 3, "none.h5")
row("dump empty", "diff {g} {d}/bad.h5", 3, "bad.h5", make=put("bad.h5", b""))
row("dump not HDF5", "diff {g} {d}/bad.h5", 3, "bad.h5", make=put("bad.h5", b"tensors, honestly" * 1000))
row("dump cut in the middle", "diff {g} {d}/bad.h5", 3, "bad.h5", make=dump_cut(0.5))
row("dump cut at the end", "diff {g} {d}/bad.h5", 3, "bad.h5", make=dump_cut(0.99))
row("golden cut", GRAFT, 3, "bad.h5", make=dump_cut(0.7))
row("dump of another schema", "diff {g} {d}/bad.h5", 3, "schema", needs="h5py",
    make=dump(lambda f: f.attrs.modify("schema", "dsv41-dump-9")))
row("dump without a schema", "diff {g} {d}/bad.h5", 3, "schema", needs="h5py",
    make=dump(lambda f: f.attrs.pop("schema")))
row("dump of another model", "diff {g} {t}", 2, "different models: config")
row("golden of another model", "graft {mini} {t}", 2, "different models: config")
row("golden without token ids", GRAFT, 2, "token_ids", needs="h5py", make=dump(drop("token_ids")))
row("golden with an id outside", GRAFT, 2, "512", needs="h5py", make=dump(lambda f: set_at(f, "token_ids", 2, 512)))
row("golden with an entry outside", GRAFT, 3, "there are", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/05/attn/topk", (0, 0), 1 << 30)))
row("golden with an expert outside", GRAFT + " --by-op", 3, "there are 8", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/03/ffn/expert_ids", (0, 0), 8)))
row("golden with NaN", GRAFT, 1, "layers/04", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/04/in", (2, 0, 0), float("nan"))))
row("golden with infinity", GRAFT, 1, "layers/04", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/04/in", (2, 0, 0), float("inf"))))
row("dump with NaN", "diff {g} {d}/bad.h5", 1, "layers/03/out", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/03/out", (1, 0, 0), float("nan"))))
row("dump with one value changed", "diff {g} {d}/bad.h5", 1, "layers/03/out", needs="h5py",
    make=dump(lambda f: set_at(f, "layers/03/out", (1, 0, 0), 3.0)))
row("dump with taps missing", "diff {g} {d}/bad.h5 --only layers/03/out", 1, "absent: layers/03/out", needs="h5py",
    make=dump(drop("layers/03/out")))
row("dump of no common tap", "diff {g} {d}/bad.h5", 1, "nothing|0 ", needs="h5py",
    make=dump(lambda f: [f.pop(k) for k in list(f) if k not in ("token_ids", "positions")]))
row("inputs from a dump of another model", "dump {mini} --inputs-from {d}/bad.h5 -o {d}/out.h5", 3, "embed", needs="h5py",
    make=dump(lambda f: image_rows(f, 64)))
row("inputs from a dump with too few rows", "dump {mini} --inputs-from {d}/bad.h5 -o {d}/out.h5", 3, "embed", needs="h5py",
    make=dump(lambda f: image_rows(f, 128, 3)))
row("inputs from a dump without token ids", "dump {mini} --inputs-from {d}/bad.h5 -o {d}/out.h5", 2, "token_ids",
    needs="h5py", make=dump(drop("token_ids")))
row("floor absent", "diff {g} {g} --floor {d}/none.json", 3, "none.json")
row("floor not JSON", "diff {g} {g} --floor {d}/floor.json", 3, "floor.json", make=put("floor.json", b"{"))
row("floor of another model", "verify {mini} --golden {golden} --suite layers --floor {d}/floor.json", 3, "floor.json",
    make=put("floor.json", b'{"schema": "something"}'))


def image_rows(f, width, rows=None):
    """An image prompt whose embedded rows have another width or number."""
    import numpy
    n = f["token_ids"].shape[0]
    f.pop("image_mask", None)
    f.create_dataset("image_mask", data=numpy.ones(n, numpy.uint8))
    attrs = dict(f["embed"].attrs)
    f.pop("embed")
    f.create_dataset("embed", data=numpy.zeros((rows or n, width), numpy.float32))
    for key, value in attrs.items():
        f["embed"].attrs[key] = value


# ---- signals: what is finished is kept ----

def is_partial(d):
    return d.dsf("diff", d.path("out.h5.part"), d.path("out.h5.part"))


def is_stopped(d):
    """The file is whole, has no half-written one beside it, and who reads it is told."""
    done = d.dsf("diff", d.path("out.h5"), d.path("out.h5"))
    if b"stopped early, after" not in done.stdout or os.path.exists(d.path("out.h5.part")):
        done.returncode = done.returncode or 99
    return done


LONG = "dump {mini} --ids-file {d}/ids -o {d}/out.h5 --decode 100000 --ctx 110000 --taps layers/0?/out,logits"
row("killed between two flushes of a dump", LONG, -9, make=put("ids", b"5 6 7 8 9"), signal=9, after=is_partial)
row("Ctrl-C while dumping", LONG, 3, "stopped after", "of 100005 tokens", make=put("ids", b"5 6 7 8 9"), signal=2, kept=True,
    after=is_stopped)
row("dump ended by the system", LONG, 3, "stopped after", make=put("ids", b"5 6 7 8 9"), signal=15, kept=True, after=is_stopped)
row("Ctrl-C while grafting", "graft {mini} {g}", 3, "stopped by a signal", signal=2, ready="tmp")
row("graft ended by the system", "graft {mini} {g} -o {d}/out.h5", 3, "stopped by a signal", signal=15, ready="tmp")
row("graft whose terminal goes", "graft {mini} {g} --by-op", 3, "stopped by a signal", signal=1, ready="tmp")
row("Ctrl-C while a case is written", "reduce {mini} {g} -o {d}/case.h5", 3, "stopped by a signal", signal=2, ready="tmp")
row("Ctrl-C while reducing", "reduce --length 100 --record {d}/tries -- sleep {length}", 3, "stopped", signal=2, ready="tmp")
row("Ctrl-C while generating", "run {mini} --ids 1,2,3 -n 400000 --ignore-eos", 0, "interrupted", signal=2, ready="stdout")
row("Ctrl-C while prefilling", "run {mini} --ids-file {d}/ids -n 1 --chunk 64 --prefill exact", 3, "stopped during prefill",
    make=put("ids", b"5 " * 200000), signal=2, ready="stderr")
