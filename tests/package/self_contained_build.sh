#!/usr/bin/env bash
# Builds the self-contained library, which an ordinary build leaves out; abseil, protobuf and Highway are fetched the first time.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need cmake dpkg-source
log=$work/log
cmake --build "$BUILD" --target inlay_self_contained >"$log" 2>&1 && exit 0
grep -qE 'Failed to fetch|Could not resolve|Temporary failure|not to be had' "$log" && skip "the dependencies' sources cannot be fetched here"
tail -50 "$log"
fail "building inlay_self_contained"
