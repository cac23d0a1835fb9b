# Shared by the scripts of ci/ (sourced, not run): names of tools, build folders, reports.
# A gate exits 0 (good), 1 (no) or 77 (could not: its last line says why). Lines of its output that
# begin with "skip " name a part that was left out; the last line that begins with "= " sums it up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=${CI_JOBS:-$(nproc)}
out=build-ci
shared=${DSF_SHARED:-../shared}
python=/usr/bin/python3 # the distribution's: another one earlier in PATH has no NumPy
clang=clang-14 clangxx=clang++-14 clang_format=clang-format-14 clang_tidy=clang-tidy-14
mkdir -p "$out/logs"

skip() { echo "skip: $*"; exit 77; }
need() { command -v "$1" >/dev/null || skip "$1 is not installed (ci/setup installs it)"; }

# The C sources and headers of the project.
c_files() { find engine kernels verify bench tools -name '*.[ch]' | sort; }

cuda_files() { find kernels bench \( -name '*.cu' -o -name '*.cuh' \) | sort; }

# nvcc, or nothing. The CUDA kernels are built in one configuration (gcc): they take minutes.
nvcc_path() { command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } || true; }

# Configurations by name; the options of a folder that exists are left as they are.
options_of() {
    case $1 in
    gcc) echo "-Dwerror=true -Dauto_features=enabled $off_yet -Dcuda=$([ -n "$(nvcc_path)" ] && echo enabled || echo disabled)" ;;
    clang) echo "-Dwerror=true -Dauto_features=enabled -Dcuda=disabled $off_yet" ;;
    off) echo "-Dwerror=true -Dauto_features=disabled" ;;
    asan) echo "-Dwerror=true -Dcuda=disabled -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=all" ;;
    tsan) echo "-Dcuda=disabled -Db_sanitize=thread -Dtests=disabled -Dfuzz=disabled" ;;
    fuzz) # the libraries too tell the fuzzer what they reached
        echo "-Dcuda=disabled -Db_sanitize=address,undefined -Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link -Dfuzz=enabled -Dtests=disabled" ;;
    gpu) echo "-Dcuda=enabled -Dtests=disabled -Dfuzz=disabled --buildtype=release" ;;
    debug-*) echo "-Dwerror=true -Dcuda=disabled --buildtype=debug" ;;
    release-*) echo "-Dwerror=true -Dcuda=disabled --buildtype=release -Db_lto=true" ;;
    *) echo "no configuration $1" >&2; return 1 ;;
    esac
}
# Features of later versions: -Dauto_features=enabled would ask for them.
off_yet="-Dnccl=disabled -Dverbs=disabled -Dhttp=disabled -Dfuzz=auto"

# build NAME: configures (once) and builds build-ci/NAME, telling nothing unless it fails. Locked: two
# gates may want the same.
build() {
    make "$1" >"$out/logs/make-$1.log" 2>&1 && return 0
    grep -vE '^\[[0-9]+/[0-9]+\] ' "$out/logs/make-$1.log"
    echo "the configuration $1 does not build"
    return 1
}
make() {
    local name=$1 cc=gcc
    case $name in clang | fuzz | *-clang) cc=$clang ;; esac
    (
        flock 9
        # Configured anew when a source file came or went: some lists are made while configuring.
        local again=
        if [ -e "$out/$name/build.ninja" ]; then
            c_files | cmp -s - "$out/$name.files" || again=--reconfigure
        fi
        if [ ! -e "$out/$name/build.ninja" ] || [ -n "$again" ]; then
            # shellcheck disable=SC2046 # options are words
            CC=$cc meson setup $again "$out/$name" $(options_of "$name")
            c_files >"$out/$name.files"
        fi
        ninja -C "$out/$name" -j "$jobs"
    ) 9>"$out/$name.lock"
}

# tests NAME SUITE: runs a Meson suite and tells what it counted; fewer than ci/expected is a failure.
tests() {
    local dir=$out/$1 suite=$2 code=0
    # Sanitizers make slow; two gates share the processors.
    meson test -C "$dir" --no-rebuild --suite "$suite" --timeout-multiplier 4 --num-processes "$jobs" --print-errorlogs || code=$?
    $python ci/count_tests.py "$dir/meson-logs/testlog.json" "$suite" ci/expected || code=1
    return $code
}

# The mini checkpoint, made once by the engine under test.
mini() {
    local dsf=$1 dir=$out/mini
    (
        flock 9
        [ -e "$dir/model.safetensors.index.json" ] && [ "$dir/.made" -nt "$dsf" ] && exit 0
        "$dsf" synth --preset mini -o "$dir" --force
        touch "$dir/.made"
    ) 9>"$out/mini.lock"
}
