#!/usr/bin/env bash
# What the stripped CPU library weighs.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need strip
limit=10000000
for library in "$BUILD/lib/libinlay.so" "$BUILD/self_contained/libinlay.so"; do
  [ -e "$library" ] || continue
  strip -o "$work/stripped" "$library"
  bytes=$(stat -c %s "$work/stripped")
  echo "${library#"$BUILD"/}: $bytes bytes stripped"
  [ "$bytes" -lt $limit ] || fail "more than $limit"
done
