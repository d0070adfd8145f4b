#!/usr/bin/env bash
# What a host compiled against an earlier inlay.h relies on, as libabigail sees it: functions keep their types, structs grow at
# their end only. The tables of tests/api pin offsets and sizes; this sees parameters and results too.
#   abi_test.sh write    writes the baseline of the present ABI version, once it is released
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need gcc perl abidw abidiff
here=$SOURCE/tests/package
cd "$work"

# library HEADER OUT: a library of inlay.h's functions with empty bodies; all that counts here is their types.
library() {
  gcc -E -P "$1" | perl -0pe 's/(__attribute__\(\(visibility\("default"\)\)\)[^;{]*);/$1 { __builtin_trap(); }/g' >"$2.c"
  gcc -g -w -shared -fPIC -Wl,-soname,libinlay.so.0 "-Wl,--version-script=$SOURCE/api/inlay.map" -Wl,--undefined-version "$2.c" -o "$2" ||
    fail "a library of $1"
}
# allowed BASELINE LIBRARY
allowed() {
  cat >grows <<'EOF'
[suppress_type]
  type_kind = struct
  has_data_member_inserted_at = end
EOF
  abidiff --no-added-syms --suppressions grows "$1" "$2"
}

header=$SOURCE/api/include/inlay/inlay.h
library "$header" now
if [ "${1:-}" = write ]; then
  version=$(sed -n 's/^#define INLAY_ABI_VERSION \([0-9]*\)$/\1/p' "$header")
  abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$here/abi_$version.xml" now
  exit 0
fi
for baseline in "$here"/abi_*.xml; do
  echo "== ${baseline##*/}"
  allowed "$baseline" now || fail "the ABI is not what ${baseline##*/} had"
done

# That it tells what may be from what may not.
changed() { sed "$1" "$header" >changed.h; cmp -s "$header" changed.h && fail "nothing changed: $1"; library changed.h changed; }
abidw --out-file now.xml now
changed '/^} inlay_step_info;/i uint64_t grown;'
allowed now.xml changed >log || { cat log; fail "a struct that grows at its end is refused"; }
for edit in '/^typedef struct inlay_step_info {/a uint64_t before;' \
  's/inlay_error_status(const inlay_error\* error)/inlay_error_status(const inlay_error* error, int more)/' \
  's/^INLAY_API size_t inlay_buffer_size/INLAY_API int inlay_buffer_size/' \
  's/^INLAY_API void inlay_buffer_release.*$//'; do
  changed "$edit"
  if allowed now.xml changed >log; then fail "this is not noticed: $edit"; fi
done
