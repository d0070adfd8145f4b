#!/usr/bin/env bash
# What the stripped CPU library weighs; the self-contained one has abseil, protobuf, PCRE2 and the C++ library in it.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need strip
# within LIBRARY BYTES
within() {
  local library=$BUILD/$1 bytes
  [ -e "$library" ] || return 0
  strip -o "$work/stripped" "$library"
  bytes=$(stat -c %s "$work/stripped")
  echo "$1: $bytes bytes stripped"
  [ "$bytes" -lt "$2" ] || fail "more than $2"
}
within lib/libinlay.so 10000000
within self_contained/libinlay.so 13000000
