#!/bin/sh
# Make the environments of the rivals in DIR: DIR/foolbox1 (CPython 3.7) and DIR/art (CPython 3.11).
# Foolbox 3 needs none: the project's own has it. An environment that is ready is left alone.
#
#   benchmarks/rivals/environments.sh DIR
#
# PYTHON37 and PYTHON311 name the interpreters, where they are not found by themselves.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
target=$(cd "$1" && pwd)

# interpreter VERSION: one on PATH that runs (a shim of pyenv may not), or the newest that pyenv has
interpreter() {
    for python in "python$1" "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/python; do
        if "$python" -c '' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "expected CPython $1 as python$1 on PATH or in pyenv, and found none" >&2
    return 1
}

# environment NAME PYTHON [OPTION...]: what NAME.txt pins; its copy in the environment, written last, says it is ready
environment() {
    name=$1 python=$2
    shift 2
    if cmp -s "$here/$name.txt" "$target/$name/.ready"; then
        return
    fi
    "$python" -m venv --clear "$target/$name"
    "$target/$name/bin/python" -m pip install --quiet "$@" --requirement "$here/$name.txt"
    cp "$here/$name.txt" "$target/$name/.ready"
}

python37=${PYTHON37:-$(interpreter 3.7)}
python311=${PYTHON311:-$(interpreter 3.11)}
environment foolbox1 "$python37" --no-deps
environment art "$python311"
