#!/usr/bin/env bash
# Makes capi.go and capi_wrap.c from inlay.h again, by SWIG 4.1 ($SWIG, or the one there is). `--check` compares instead; exit
# status 77: this SWIG is of another version, whose words differ.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
swig=${SWIG:-swig}
# SWIG writes the path of its input into what it makes.
cd "$here/../../../.."
to=$here
if [ "${1:-}" = --check ]; then
  version=$(sed -n 's/.*Version \([0-9.]*\)$/\1/p' "$here/capi.go" | head -1)
  "$swig" -version | grep -qx "SWIG Version $version" || { echo "capi.go is of SWIG $version, this is another: not compared"; exit 77; }
  to=$(mktemp -d)
  trap 'rm -rf "$to"' EXIT
fi
"$swig" -go -cgo -intgosize 64 -module capi -package capi -Wall -Werror -Iapi/include -outdir "$to" -o "$to/capi_wrap.c" bindings/inlay.i
for file in capi.go capi_wrap.c; do
  cmp "$to/$file" "$here/$file" || { echo "$file is not what SWIG makes of inlay.h: run $0" >&2; exit 1; }
done
