#!/usr/bin/env bash
# The self-contained library needs glibc only, lets nothing out but the ABI, takes nothing from the process it is loaded into,
# and lives beside other copies of what it has inside.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
folder=$BUILD/self_contained
[ -e "$folder/libinlay.so.0" ] || skip "it was not built"
need gcc g++ nm readelf protoc pkg-config
here=$SOURCE/tests/package/self_contained
cd "$work"

echo "== it needs glibc only"
others=$(needs "$folder/libinlay.so" | grep -vE '^(lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux.*)$' || true)
[ -z "$others" ] || fail "it needs $others"
# Weak and never there: what libgcc looks for of a profiler, and of transactional memory.
foreign=$(nm -D --undefined-only "$folder/libinlay.so" | awk '{ print $NF }' | grep -vE '@GLIBC_|^(_ITM_|_ZGTt|__gmon_start__$)' || true)
[ -z "$foreign" ] || fail "it takes $foreign from elsewhere"
echo "newest glibc wanted: $(nm -D --undefined-only "$folder/libinlay.so" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)"

echo "== it exports what the ordinary library does, which api.Symbols pins"
for library in "$BUILD/lib/libinlay.so" "$folder/libinlay.so"; do nm -D --defined-only "$library" | cut -d' ' -f2- | sort; done >both
[ -z "$(sort both | uniq -u)" ] || fail "differently exported: $(sort both | uniq -u)"

echo "== a host whose every other symbol is a trap"
nm "$folder/libinlay.so.0" | awk '$2 !~ /[Uw]/ { print $3 }' |
  grep -E '^(_Z|_?pcre2_|utf8proc_|__cxa_|__gxx_|__dynamic_cast$|_Unwind_)' | grep -vF . | sort -u >traps
[ "$(wc -l <traps)" -gt 5000 ] || fail "only $(wc -l <traps) traps: is the library stripped?"
{ awk '{ printf ".globl \"%s\"\n\"%s\":\n", $1, $1 }' traps; printf '  ud2\n.section .note.GNU-stack,"",@progbits\n'; } >traps.s
gcc "$SOURCE/examples/simple.c" traps.s "-I$SOURCE/api/include" "-L$folder" "-Wl,-rpath,$folder" -linlay -rdynamic -o trapped
answers ./trapped
# That the traps are traps: the ordinary library looks abseil up in the process.
if sh -c 'ulimit -c 0; LD_LIBRARY_PATH=$1 LD_BIND_NOW=1 ./trapped "$2"; exit $?' sh "$BUILD/lib" "$model" >/dev/null 2>&1; then fail "the ordinary library ran among traps"; fi

echo "== a host with other copies of abseil, protobuf and the C++ runtime"
for name in stats trace; do sed '/LITE_RUNTIME/d' "$SOURCE/api/proto/$name.proto" >$name.proto; done
protoc --cpp_out=. stats.proto trace.proto
# shellcheck disable=SC2046
g++ -std=c++20 -O1 "$here/host.cc" stats.pb.cc trace.pb.cc -I. "-I$SOURCE/api/include" -rdynamic -pthread \
  $(pkg-config --cflags --libs protobuf absl_flat_hash_map absl_statusor absl_synchronization absl_strings) -o host
for when in later first; do
  preload=""
  [ $when = first ] && preload=$folder/libinlay.so.0
  LD_PRELOAD=$preload LD_BIND_NOW=1 LD_DEBUG=bindings LD_DEBUG_OUTPUT=$work/bindings ./host "$folder/libinlay.so.0" "$model" >said ||
    fail "the host that loads the library $when"
  [ "$(cat said)" = "$("$BUILD/bin/simple_c" "$model")" ] || fail "the host that loads the library $when says: $(cat said)"
  [ "$(cat bindings.* | grep -c "binding file $folder/libinlay.so.0 ")" -gt 100 ] || fail "no bindings were logged"
  cat bindings.* | grep "binding file $folder/libinlay.so.0 " | grep -vE "to [^ ]*/(lib(c|m|dl|rt|pthread)\.so|ld-linux)[^ ]* \[" |
    grep -vE "to $folder/libinlay.so.0 \[[0-9]*\]: normal symbol .inlay_" >foreign || true
  [ ! -s foreign ] || fail "bound elsewhere: $(cat foreign)"
  cat bindings.* | grep "to $folder/libinlay.so.0 \[" | grep -v 'symbol .inlay_' >taken || true
  [ ! -s taken ] || fail "taken from the library: $(cat taken)"
  rm bindings.*
done
