#!/bin/sh
# Writes what the images install, each package by the digests of its files: lock.sh BIN
set -eu
bin=$1
lock() {
    target=$1
    shift
    "$bin/python" tools/requirements.py "$@" | "$bin/uv" pip compile --quiet --universal --python-version 3.11 \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes \
        --constraint constraints.txt --output-file "docker/requirements-$target.txt" -
}
lock cpu service cpu
lock gpu service gpu
lock training training cpu
lock docs docs
