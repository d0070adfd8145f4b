#!/usr/bin/env bash
# Builds what is missing, and starts the game. Arguments go to it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../../tests/support/packages.sh
. tests/support/packages.sh
# shellcheck disable=SC2086
need_packages $inlay_build_packages swig mono-mcs mono-runtime
[ -f build/CMakeCache.txt ] || cmake -S . -B build -G Ninja -DINLAY_TESTS=OFF -DINLAY_CUDA=OFF -DINLAY_UNITY=ON
ninja -C build console_game_cs >build/console_game_cs.log || { tail -40 build/console_game_cs.log; exit 1; }
MONO_PATH=build/bindings/csharp exec mono build/examples/console_game_cs/Game.exe "$@"
