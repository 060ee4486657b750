#!/bin/sh
# Makes a small image with Python from Debian's packages, for hosts that reach no image registry.
# As root, with debootstrap and podman: base_image.sh NAME
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip \
    "${SUITE:-bookworm}" "$root"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar --create --directory "$root" . | podman import --change 'CMD ["python3"]' \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$1"
