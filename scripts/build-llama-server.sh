#!/usr/bin/env bash
# Builds llama-server into the cache, once: <cache>/llama-server/llama-server.
#
# The source is the archive of llama-cpp-python on the Python package index, which carries
# llama.cpp: one pinned file, checked by its hash, and no other host than the index is needed.
# Static, for this machine's own CPU; with CUDA where there is an nvcc. Under 5 minutes on 2 cores.
#
#   PYTHON=…            Python to fetch with (default: .venv/bin/python, else python3)
#   DRAINBENCH_CACHE=…  the cache (default: ~/.cache/drainbench)
set -euo pipefail

PACKAGE=llama-cpp-python
PACKAGE_VERSION=0.3.36
PACKAGE_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
LLAMA_COMMIT=0c1e57098   # the commit of llama.cpp in that archive
CMAKE_VERSION=4.4.5
NINJA_VERSION=1.13.2

say() { printf 'llama-server: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${DRAINBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/drainbench}
target=$cache/llama-server
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
backend=cpu
[ -z "$nvcc" ] || backend=cuda
stamp="llama.cpp $LLAMA_COMMIT ($PACKAGE $PACKAGE_VERSION, $backend, $(uname -m))"

is_built() { [ -x "$target/llama-server" ] && [ "$(cat "$target/version" 2>/dev/null)" = "$stamp" ]; }
done_already() { say "already built: $stamp, $target/llama-server"; exit 0; }

if is_built; then done_already; fi

mkdir -p "$target"
exec 9>"$target/lock"
if ! flock --nonblock 9; then
    say "another build is under way, waiting for it"
    flock 9
fi
if is_built; then done_already; fi
rm -rf "$target"/build.*   # of builds that were killed: the lock says that none is under way

for tool in cc c++ tar; do
    command -v "$tool" >/dev/null || die "no $tool; install it: apt-get install build-essential"
done
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$root/.venv/bin/python
    [ -x "$python" ] || python=$(command -v python3) || die "no python3; apt-get install python3"
fi

work=$(mktemp -d "$target/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
free_mib=$(df -Pm "$work" | awk 'NR==2 {print $4}')
[ "$free_mib" -ge 2048 ] || die "needs 2 GiB of room in $cache, has $free_mib MiB"

if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
    say "fetching cmake $CMAKE_VERSION and ninja $NINJA_VERSION"
    "$python" -m venv "$work/venv" || die "$python has no venv; apt-get install python3-venv"
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "cmake==$CMAKE_VERSION" "ninja==$NINJA_VERSION" || die "pip could not fetch cmake and ninja"
    PATH=$work/venv/bin:$PATH
fi

say "fetching $PACKAGE $PACKAGE_VERSION (77 MB)"
printf '%s==%s --hash=sha256:%s\n' "$PACKAGE" "$PACKAGE_VERSION" "$PACKAGE_SHA256" >"$work/source.txt"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --no-binary "$PACKAGE" --dest "$work" -r "$work/source.txt" || die "pip could not fetch $PACKAGE"
mkdir "$work/source"
tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/source" --strip-components=1

options=(
    -DCMAKE_BUILD_TYPE=Release
    -DBUILD_SHARED_LIBS=OFF
    -DGGML_NATIVE=ON
    -DGGML_CCACHE=OFF
    -DLLAMA_CURL=OFF
    -DLLAMA_OPENSSL=OFF
    -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF
    -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF
    -DLLAMA_ALL_WARNINGS=OFF
    -DCMAKE_PROJECT_llama.cpp_INCLUDE="$root/scripts/llama-server.cmake"
    # The archive's history is cut off, so that its own count of commits would be wrong.
    -DLLAMA_BUILD_NUMBER=0
    -DLLAMA_BUILD_COMMIT="$LLAMA_COMMIT"
)
if [ "$backend" = cuda ]; then
    options+=(-DGGML_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc")
fi
say "building $stamp; this happens once"
cmake -S "$work/source/vendor/llama.cpp" -B "$work/build" -G Ninja "${options[@]}" \
    >"$work/configure.log" 2>&1 || { tail -n 20 "$work/configure.log" >&2; die "cmake failed"; }
cmake --build "$work/build" --target llama-server --parallel "$(nproc)" || die "the build failed"

"$work/build/bin/llama-server" --version >/dev/null 2>&1 || die "the built program does not run"
rm -f "$target/version"
mv -f "$work/build/bin/llama-server" "$target/llama-server"
printf '%s\n' "$stamp" >"$work/version"
mv -f "$work/version" "$target/version"
say "built: $target/llama-server"
