#!/bin/sh
# Writes what an image holds, pinned, as a CycloneDX bill of materials: sbom.sh BIN cpu|gpu
set -eu
bin=$1 target=$2
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$bin/python" -m venv --without-pip "$environment/venv"
"$bin/python" tools/requirements.py service "$target" otel >"$environment/requirements.txt"
"$bin/python" -m pip --python "$environment/venv/bin/python" install --quiet \
    --constraint constraints.txt --requirement "$environment/requirements.txt"
"$bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible \
    --output-file "sbom-$target.cdx.json" "$environment/venv/bin/python"
