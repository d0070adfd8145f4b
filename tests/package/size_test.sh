#!/usr/bin/env bash
# size_test.sh LIBRARY BYTES: what the CPU library of the build folder weighs, stripped; the self-contained one has abseil, protobuf, PCRE2 and the C++ library in it.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need strip
[ -e "$BUILD/$1" ] || skip "it was not built"
strip -o "$work/stripped" "$BUILD/$1"
bytes=$(stat -c %s "$work/stripped")
echo "$1: $bytes bytes stripped"
[ "$bytes" -lt "$2" ] || fail "more than $2"
