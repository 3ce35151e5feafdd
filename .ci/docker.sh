#!/usr/bin/env bash
# A Docker Engine and our image on a bare Debian machine: no registry, no service manager.
#
#   bash .ci/docker.sh up        install what is missing, start the engine, build the image (default)
#   . .ci/docker.sh              the same, and tells the tests what they need not skip
#   bash .ci/docker.sh restart   stop and start an engine that `up` started (the tests' way to lose it)
#   bash .ci/docker.sh stop      stop an engine that `up` started
#
# Everything that takes long is kept: packages by apt, the image by the engine, programs in the cache
# folder. An engine that answers already is used as it is and never stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${DRAINBENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/drainbench}
python=${PYTHON:-$here/.venv/bin/python}
state=/run/drainbench-dockerd.pid
log=$cache/dockerd.log
socket=/var/run/docker.sock

# The Data Plane API's 3.2.12, by commit: its module path has no /v3, so a tag can't be asked for.
dataplane=github.com/haproxytech/dataplaneapi/cmd/dataplaneapi@2abf6232e329700061d13a4ab0976f82fd9260a5

say() { printf '[docker] %s\n' "$*"; }

answers() { curl --silent --fail --max-time 5 --unix-socket "$socket" http://docker/_ping >/dev/null 2>&1; }

packages() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io iptables)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v curl >/dev/null || missing+=(curl)
    [ ${#missing[@]} -eq 0 ] && return
    say "installing ${missing[*]}"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }
}

start() {
    if answers; then
        say "an engine answers already"
        return
    fi
    mkdir -p "$cache"
    # In a session of its own: it outlives this script, and Ctrl-C of a test run is not for it.
    setsid nohup dockerd >>"$log" 2>&1 </dev/null &
    echo $! >"$state"
    for _ in $(seq 120); do
        answers && { say "engine started (log: $log)"; return; }
        kill -0 "$(cat "$state")" 2>/dev/null || break
        sleep 0.5
    done
    say "the engine did not start; its last lines:"
    tail -n 20 "$log"
    return 1
}

stop() {
    [ -f "$state" ] || return 0
    local pid
    pid=$(cat "$state")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 120); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
    done
    rm -f "$state"
    say "engine stopped"
}

data_plane_api() {
    [ -x "$cache/dataplaneapi/dataplaneapi" ] && return
    command -v go >/dev/null || { say "no Go tools: the image gets no Data Plane API"; return; }
    local said
    if said=$(GOBIN=$cache/dataplaneapi GOFLAGS= CGO_ENABLED=0 go install "$dataplane" 2>&1); then
        say "built the Data Plane API"
    else
        say "no Data Plane API in the image: $(tail -n 1 <<<"$said" | tr -s '[:space:]' ' ')"
    fi
}

image() {
    cd "$here"
    [ -x "$python" ] || bash scripts/setup.sh
    local try
    for try in 1 2 3; do
        "$python" -m testbed build-image >"$cache/build-image.log" 2>&1 && { tail -n 1 "$cache/build-image.log"; return; }
        say "building the image failed (try $try): $(tail -n 1 "$cache/build-image.log")"
    done
    return 1
}

tell_the_tests() {
    DRAINBENCH_REQUIRE=${DRAINBENCH_REQUIRE:+$DRAINBENCH_REQUIRE,}docker
    if [ -f "$state" ]; then
        export DRAINBENCH_DOCKER_RESTART="bash $here/.ci/docker.sh restart"
        DRAINBENCH_REQUIRE+=,docker-restart
    fi
    [ ! -x "$cache/dataplaneapi/dataplaneapi" ] || DRAINBENCH_REQUIRE+=,dataplaneapi
    export DRAINBENCH_REQUIRE
}

case ${1:-up} in
    up)
        packages
        start
        data_plane_api
        image
        if [[ ${BASH_SOURCE[0]} != "$0" ]]; then
            tell_the_tests
            trap 'bash "$here/.ci/docker.sh" stop' EXIT
        fi
        ;;
    restart)
        [ -f "$state" ] || { say "this engine is not ours to restart"; exit 1; }
        stop
        start
        ;;
    stop) stop ;;
    *) say "up, restart or stop"; exit 2 ;;
esac
