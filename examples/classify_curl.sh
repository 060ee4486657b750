#!/bin/sh
# Classify a picture with curl: `sh examples/classify_curl.sh 7.png`.
set -eu
[ $# -eq 1 ] || { echo "usage: sh $0 PICTURE" >&2; exit 2; }
answer=$(curl -sS --fail-with-body -F "file=@$1" "${CAPSNET_URL:-http://localhost:8000}/classify") ||
    { echo "$answer" >&2; exit 1; }
echo "$answer" | sed 's/.*"class_name":"\([^"]*\)".*/\1/'
