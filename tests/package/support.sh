# Sourced by the tests of this folder. BUILD and SOURCE come from ctest.
# shellcheck shell=bash
set -euo pipefail
: "${BUILD:?}" "${SOURCE:?}"
export LC_ALL=C
unset LD_LIBRARY_PATH LD_PRELOAD
model=$SOURCE/examples/models/pocket-7m

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
# ctest takes 77 for skipped.
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }
need() {
  local tool
  for tool in "$@"; do command -v "$tool" >/dev/null || skip "there is no $tool"; done
}

# answers PROGRAM [MODEL]: it says what the build's own example says.
answers() {
  local said
  said=$("$1" "${2:-$model}") || fail "$1 ends with status $?"
  [ -n "$said" ] || fail "$1 says nothing"
  [ "$said" = "$("$BUILD/bin/simple_c" "$model")" ] || fail "$1 says: $said"
}

# needs LIBRARY: the names in its dynamic section.
needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
