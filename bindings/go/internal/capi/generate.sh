#!/usr/bin/env bash
# Makes capi.go and capi_wrap.c from inlay.h again, into the folder given or this one. `--check` compares instead.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
swig=${SWIG:-swig}
# SWIG writes the path of its input into what it makes.
cd "$here/../../../.."
to=$here
check=0
[ "${1:-}" = --check ] && { check=1; to=$(mktemp -d); trap 'rm -rf "$to"' EXIT; }
"$swig" -go -cgo -intgosize 64 -module capi -package capi -Wall -Werror -Iapi/include -outdir "$to" -o "$to/capi_wrap.c" bindings/inlay.i
[ $check -eq 0 ] && exit 0
for file in capi.go capi_wrap.c; do
  cmp "$to/$file" "$here/$file" || { echo "$file is not what SWIG makes of inlay.h: run $0" >&2; exit 1; }
done
