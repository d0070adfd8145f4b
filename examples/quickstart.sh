#!/usr/bin/env bash
# Installs what is missing, builds, and lets the model that ships with Inlay answer a prompt.
#   examples/quickstart.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=../tests/support/packages.sh
. tests/support/packages.sh

# shellcheck disable=SC2086
need_packages $inlay_build_packages
if [ ! -x build/bin/inlay ]; then echo "Building (a few minutes the first time)"; fi
mkdir -p build
[ -f build/build.ninja ] || cmake -S . -B build -G Ninja -DINLAY_TESTS=OFF >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
ninja -C build bin/inlay >build/build.log 2>&1 || { tail -40 build/build.log; exit 1; }

prompt=${1:-Tell a story about a fox and a lantern.}
echo "> $prompt"
build/bin/inlay generate examples/models/pocket-7m --chat --prompt "$prompt" --max-tokens 200
