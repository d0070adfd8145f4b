#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. Exit status 0 means that all passed.
#   tests/run.sh          release tests, sanitizers, fuzzers (on two cores about three quarters of an hour the first time, half of that with what ccache kept)
#   tests/run.sh quick    the release build's tests only
#   tests/run.sh all      everything: kernels under AddressSanitizer, packages in a new Debian and the self-contained library, too
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=support/packages.sh
. tests/support/packages.sh

# shellcheck disable=SC2086
need_packages $inlay_build_packages $inlay_test_packages $inlay_binding_packages
jobs=$(nproc)
# Clones share what ccache keeps, precompiled headers or not.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

# build FOLDER TARGETS... -- CMAKE-OPTIONS...: configures (quietly) and builds.
build() {
  local folder=$1 targets=()
  shift
  while [ "$1" != -- ]; do targets+=("$1"); shift; done
  shift
  mkdir -p "$folder"
  cmake -S . -B "$folder" -G Ninja "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; return 1; }
  ninja -C "$folder" -j "$jobs" "${targets[@]}" >"$folder/build.log" 2>&1 || { tail -60 "$folder/build.log"; return 1; }
}

# run_tests FOLDER CTEST-OPTIONS...: ctest, and how many cases its programs ran.
run_tests() {
  local folder=$1
  shift
  ctest --test-dir "$folder" -j "$jobs" --output-on-failure --progress "$@"
  awk '/^\[  PASSED  \]/ {passed += $4} /^\[  SKIPPED \] [0-9]+ test/ {skipped += $4}
    END {printf "GoogleTest: %d cases passed, %d skipped (most for want of a GPU or of a tool)\n", passed, skipped}' "$folder/Testing/Temporary/LastTest.log"
}

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

has_gpu() { [ -n "$(nvidia-smi -L 2>/dev/null)" ]; }

# A build from nothing: several sources at a time take half as long, and without a GPU nothing would run CUDA code. Who builds here already keeps
# what is set.
fresh=()
if [ ! -f build/CMakeCache.txt ]; then
  fresh=(-DINLAY_UNITY=ON)
  has_gpu || fresh+=(-DINLAY_CUDA=OFF)
fi

slow=(-LE '^slow$')
[ "${1:-}" = all ] && slow=()

say "Release build"
build build all -- -DCMAKE_BUILD_TYPE=Release -DINLAY_TESTS=ON -DINLAY_EXAMPLES=ON "${fresh[@]}"
say "Tests"
run_tests build "${slow[@]}"
[ "${1:-}" = quick ] && exit 0

# Sanitizers look for the library's faults. If the release build is without CUDA, they are shown its tests, and its kernels, which take longer to compile than
# all else that is looked at; whoever looks for races, its readers of files, too: these and kernels wait for nobody.
address=() thread=()
if grep -q '^INLAY_CUDA:[A-Z]*=OFF$' build/CMakeCache.txt; then
  address=(-DINLAY_TESTS_FROM="$PWD/build")
  [ "${1:-}" = all ] || address+=(-DINLAY_ARCHIVES_FROM="$PWD/build" -DINLAY_ARCHIVES=inlay_kernels)
  thread=(-DINLAY_ARCHIVES_FROM="$PWD/build" -DINLAY_ARCHIVES="inlay_kernels;inlay_core_json;inlay_core_text;inlay_core_formats")
fi

# One build serves the sanitizers' tests and the fuzzers: compiling is most of the time.
say "AddressSanitizer, UndefinedBehaviorSanitizer, fuzzers"
build build-asan all -- -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_COMPILER=clang++ -DINLAY_CUDA=OFF -DINLAY_EXAMPLES=OFF -DINLAY_BINDINGS=OFF -DINLAY_FUZZ=ON -DINLAY_FUZZ_SECONDS=5 -DINLAY_UNITY=ON -DINLAY_SANITIZE=fuzzer-no-link,address,undefined \
  -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold "${address[@]}"
# What sanitizers look for is the same in all families: each runs once, and a few stand for all in the rest.
families= some="Models/GoldenModel.WholePromptAndGreedy/*:"
for suite in GoldenModel QuantizedFamily DeterminismTest ScheduledTest EveryDecoderTest BatchingTest GgufFamilies Mixtures; do
  families+="Models/$suite.*:"
  some+="Models/$suite.AmongOthersOnAnyThreads/*:"
  for model in llama3 gpt_oss deepseek_v32 qwen3_next rwkv7; do some+="Models/$suite.*/$model*:"; done
done
# What takes long and proves numbers, times or amounts, which the release build's tests have proved.
numbers="ExpertsTest.*:Selecting.*:GptqTest.*:CalibratedTest.Methods*:CheckpointTest.EveryType*:CheckpointTest.MethodsServe*:Methods/QuantizeMemory.*:HostileGguf.*:"
numbers+="ExhaustedJsonTest.LoadingArchitectures:ExhaustedJsonTest.Quantizing"
without=()
[[ ${address[*]} == *inlay_kernels* ]] && without=(-E '^kernels\.')
GTEST_FILTER="-$families$numbers" run_tests build-asan "${without[@]}"
GTEST_FILTER=$some run_tests build-asan -R '^core_(model|engine|quantize)\.'

say "ThreadSanitizer"
build build-tsan memory_test core_engine_test api_test -- \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DINLAY_CUDA=OFF -DINLAY_EXAMPLES=OFF -DINLAY_BINDINGS=OFF -DINLAY_UNITY=ON -DINLAY_SANITIZE=thread \
  "${thread[@]}"
GTEST_FILTER="-$families" run_tests build-tsan -L threads
GTEST_FILTER=$some run_tests build-tsan -R '^core_engine\.'

if ! has_gpu && command -v "${CUDACXX:-nvcc}" >/dev/null; then
  say "CUDA code compiles"
  build build-cuda inlay memory_test kernels_test bench_cuda -- -DCMAKE_BUILD_TYPE=Release -DINLAY_CUDA=ON -DINLAY_CUDA_QUICK=ON \
    -DINLAY_CUDA_CODE=90a -DINLAY_TESTS=ON -DINLAY_EXAMPLES=OFF -DINLAY_BINDINGS=OFF -DINLAY_UNITY=ON
fi

say "All passed"
