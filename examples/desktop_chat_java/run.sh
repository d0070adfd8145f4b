#!/usr/bin/env bash
# Installs what is missing, builds, and opens the desktop chat.
#   examples/desktop_chat_java/run.sh [MODEL [FOLDER [SYSTEM]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../../tests/support/packages.sh
. tests/support/packages.sh

# shellcheck disable=SC2086
need_packages $inlay_build_packages swig default-jdk
mkdir -p build
[ -f build/build.ninja ] || cmake -S . -B build -G Ninja -DINLAY_TESTS=OFF >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
ninja -C build desktop_chat >build/build.log 2>&1 || { tail -40 build/build.log; exit 1; }
[ $# -gt 0 ] || set -- examples/models/pocket-7m
exec java -jar build/examples/desktop_chat_java/desktop_chat.jar "$@"
