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
if [ ! -f build/build.ninja ]; then
  # From nothing: several sources at a time take half as long. Without a GPU CUDA code would be compiled for nothing.
  options=(-DINLAY_TESTS=OFF -DINLAY_UNITY=ON)
  [ -n "$(nvidia-smi -L 2>/dev/null)" ] || options+=(-DINLAY_CUDA=OFF)
  cmake -S . -B build -G Ninja "${options[@]}" >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
fi
ninja -C build bin/inlay >build/build.log 2>&1 || { tail -40 build/build.log; exit 1; }

prompt=${1:-Tell a story about a fox and a lantern.}
echo "> $prompt"
build/bin/inlay generate examples/models/pocket-7m --chat --prompt "$prompt" --max-tokens 200
