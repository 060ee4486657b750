#!/bin/sh
# Writes what an image holds, pinned, as a CycloneDX bill of materials: sbom.sh BIN cpu|gpu
set -eu
bin=$1 target=$2
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$bin/python" -m venv --without-pip "$environment/venv"
"$bin/python" -m pip --python "$environment/venv/bin/python" install --quiet \
    --only-binary :all: --require-hashes --requirement "docker/requirements-$target.txt"
"$bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible \
    --output-file "sbom-$target.cdx.json" "$environment/venv/bin/python"
