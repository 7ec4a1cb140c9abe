#!/usr/bin/env bash
# Makes .venv from the locks in requirements/, with hashes checked; does nothing where that was done already.
#
#   demo/environment.sh [demo|dev]     dev is demo plus what tests and lint need, in the same .venv
#
# PYTHON names the Python 3.11 to use; the network settings of pip (index, certificate, proxy) are used for uv, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# uv ends with a code of its own at Ctrl-C, after which bash would go on.
trap 'exit 130' INT TERM

kind=${1:-demo}
venv=$PWD/.venv
began=$SECONDS

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

say() { printf '%s\n' "$*"; }

case $kind in demo | dev) ;; *) fail "unknown environment '$kind': expected demo or dev" ;; esac

find_python() {
    local candidate version
    for candidate in ${PYTHON:-python3.11 python3 python}; do
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        if [ "$version" = 3.11 ]; then
            "$candidate" -c 'import venv, ensurepip' 2>/dev/null ||
                fail "$candidate has no venv module: install it (Debian and Ubuntu: python3.11-venv)"
            python=$candidate
            return
        fi
    done
    fail "Python 3.11 is needed, found ${version:-none}: install it, or name it with PYTHON=/path/to/python3.11"
}

# The same question as demo/kafka_jars.py asks; here it is asked before anything is downloaded.
check_java() {
    local java=java version advice
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    advice="install one (Debian and Ubuntu: openjdk-17-jre-headless) and set JAVA_HOME or PATH to it"
    version=$("$java" -XshowSettings:properties -version 2>&1) ||
        fail "Kafka and Spark need Java 17 or later, but $java cannot be run: $advice"
    version=$(sed -nE 's/.*java\.specification\.version = (1\.)?([0-9]+).*/\2/p' <<<"$version")
    [ "${version:-0}" -ge 17 ] ||
        fail "Kafka and Spark need Java 17 or later, but $java is Java ${version:-unknown}: $advice"
}

check_disk() {
    local free_kib
    free_kib=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free_kib" -ge $((3 * 1024 * 1024)) ] ||
        fail "3 GiB of free disk space are needed at $PWD, found $((free_kib / 1024)) MiB: free up disk space"
}

# What is installed is named by all that decides it.
lock_hash() { cat requirements/bootstrap.txt "requirements/$1.txt" pyproject.toml | sha256sum | cut -d' ' -f1; }

is_made() { [ "$(cat "$venv/.installed-$1" 2>/dev/null)" = "$(lock_hash "$1")" ]; }

# Prints the value that pip would use for a setting: environment first, then configuration files.
pip_setting() {
    local section
    for section in :env: install global; do
        sed -nE "s/^$section\.$1='(.*)'\$/\1/p" <<<"$pip_settings" | sed 's/\\n/ /g; s/^ *//' | grep . && return
    done
    return 0
}

# Gives uv the setting `$2` of pip as variable `$1`, unless the user set that variable.
translate() {
    local value
    [ -z "${!1:-}" ] || return 0
    value=$(pip_setting "$2")
    [ -z "$value" ] || export "$1=$value"
}

use_pip_settings() {
    local pip_settings
    pip_settings=$("$venv/bin/python" -m pip config list 2>/dev/null || true)
    translate UV_DEFAULT_INDEX index-url
    translate UV_INDEX extra-index-url
    translate SSL_CERT_FILE cert
    translate UV_INSECURE_HOST trusted-host
    translate UV_HTTP_TIMEOUT default-timeout
    translate UV_HTTP_TIMEOUT timeout
    translate HTTPS_PROXY proxy
    translate UV_NO_INDEX no-index
    local links place
    for place in $(pip_setting find-links); do
        # uv fails on a place that is not there, pip does not.
        case $place in *://*) ;; *) [ -d "$place" ] || continue ;; esac
        links=${links:+$links,}$place
    done
    [ -z "${links:-}" ] || export "UV_FIND_LINKS=${UV_FIND_LINKS:-$links}"
}

uv_install() {
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps "$@"
}

install() {
    local advice="If the package registry could not be reached, check the network (pip's settings for index, proxy, \
and certificate are used), and run this command again. Downloaded packages are kept."
    if ! [ -x "$venv/bin/uv" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
        [ "$(cat "$venv/.installed-bootstrap" 2>/dev/null)" != "$(sha256sum <requirements/bootstrap.txt)" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
            -r requirements/bootstrap.txt || fail "uv could not be installed. $advice"
        sha256sum <requirements/bootstrap.txt >"$venv/.installed-bootstrap"
    fi
    use_pip_settings
    say "Installing $(grep -c '^[a-zA-Z0-9]' "requirements/$kind.txt") packages, 1.3 GB on disk; the first time takes minutes ..."
    uv_install --require-hashes -r "requirements/$kind.txt" ||
        # Once more with the system's certificates, where a company's own authority may be.
        UV_NATIVE_TLS=${UV_NATIVE_TLS:-1} uv_install --require-hashes -r "requirements/$kind.txt" ||
        fail "the packages could not be installed. $advice"
    uv_install --no-build-isolation -e . || fail "this project could not be installed into $venv; see above."
}

# Without this archive Spark starts, too, only slower.
archive_classes() {
    local log=$venv/spark-classes.log
    say "Archiving the classes that Spark loads, so that each job starts a few seconds sooner ..."
    "$venv/bin/python" -m demo.spark_classes >"$log" 2>&1 || say "The classes were not archived, so jobs start more slowly; see $log."
}

is_usable() {
    is_made "$kind" || { [ "$kind" = demo ] && is_made dev; } || return 1
    # A directory that was moved has scripts that point to its old place.
    [ "$(cat "$venv/.place" 2>/dev/null)" = "$venv" ] && "$venv/bin/python" -c '' 2>/dev/null
}

if is_usable; then exit 0; fi
find_python
check_java
check_disk
# One at a time: another `make` would take a half-made environment for a broken one.
if command -v flock >/dev/null; then
    exec 9<"$PWD"
    flock --timeout 1800 9 || fail "another command has been creating $venv for 30 minutes: end it, then run this command again"
    if is_usable; then exit 0; fi
fi
if [ -e "$venv" ] && { [ -e "$venv/.unfinished" ] || [ "$(cat "$venv/.place" 2>/dev/null)" != "$venv" ] ||
    ! "$venv/bin/python" -c '' 2>/dev/null; }; then
    say "$venv is incomplete or was moved; creating it again ..."
    rm -rf "$venv"
fi
if ! [ -e "$venv" ]; then
    say "Creating $venv with $python ..."
    mkdir "$venv"
    touch "$venv/.unfinished"
    "$python" -m venv "$venv" || fail "$python could not create a virtual environment in $venv"
    printf '%s' "$venv" >"$venv/.place"
fi
touch "$venv/.unfinished"
rm -f "$venv/.installed-demo" "$venv/.installed-dev"
install
archive_classes
lock_hash "$kind" >"$venv/.installed-$kind"
rm "$venv/.unfinished"
say "The environment is ready after $((SECONDS - began)) s."
