#!/bin/sh
# Classify a picture with curl: `sh examples/classify_curl.sh 7.png`.
set -eu
curl -s --fail-with-body -F "file=@$1" "${CAPSNET_URL:-http://localhost:8000}/classify" |
    sed 's/.*"class_name":"\([^"]*\)".*/\1/'
