#!/usr/bin/env bash
# Installs, moves the prefix, and builds programs on it: by find_package, by pkg-config, by one line of gcc.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need cmake gcc g++ pkg-config readelf nm

cmake --install "$BUILD" --prefix "$work/first" >"$work/install.log"
mkdir "$work/elsewhere"
mv "$work/first" "$work/elsewhere/prefix"
prefix=$work/elsewhere/prefix
lib=$(dirname "$(find "$prefix" -name libinlay.so)")
examples=$prefix/share/doc/libinlay-dev/examples
cd "$work"

echo "== no path of the build, of the source or of the first prefix in what is installed"
for path in "$BUILD" "$SOURCE" "$work/first"; do
  if grep -rlaF "$path/" "$prefix"; then fail "these name $path"; fi
done

echo "== only inlay_* leaves the static library"
others=$(nm -g --defined-only "$lib/libinlay.a" | awk 'NF == 3 && $3 !~ /^inlay_/ { print $3 }')
[ -z "$others" ] || fail "libinlay.a defines $others"
[ "$(nm -g --defined-only "$lib/libinlay.a" | grep -c ' T inlay_')" -eq "$(grep -c '^ *inlay_' "$SOURCE/api/inlay.map")" ] ||
  fail "libinlay.a and inlay.map differ"

echo "== the library by its name"
[ "$(readelf -d "$lib/libinlay.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libinlay.so.0 ] || fail "another SONAME"
if readelf -d "$lib/libinlay.so" | grep -E 'RPATH|RUNPATH'; then fail "the library has a search path"; fi

echo "== find_package"
for static in OFF ON; do
  cmake -S "$SOURCE/tests/package/consumer" -B "$work/cmake$static" -DSTATIC=$static "-DEXAMPLES=$examples" "-DCMAKE_PREFIX_PATH=$prefix" >"$work/log" 2>&1 ||
    { tail -40 "$work/log"; fail "configuring a consumer"; }
  cmake --build "$work/cmake$static" >"$work/log" 2>&1 || { tail -40 "$work/log"; fail "building a consumer"; }
  answers "$work/cmake$static/consumer_c"
  answers "$work/cmake$static/consumer_cc"
done
answers "$work/cmakeON/consumer_static"
ldd "$work/cmakeOFF/consumer_c" | grep -F "$lib/libinlay.so.0" >/dev/null || fail "the consumer runs another libinlay"
if needs "$work/cmakeON/consumer_static" | grep inlay; then fail "the static consumer needs libinlay"; fi

echo "== pkg-config"
export PKG_CONFIG_PATH=$lib/pkgconfig
# shellcheck disable=SC2046
gcc "$examples/simple.c" $(pkg-config --cflags --libs inlay) -o by_pkgconfig
LD_LIBRARY_PATH=$lib answers ./by_pkgconfig
# shellcheck disable=SC2046
gcc "$examples/simple.c" $(pkg-config --cflags --static --libs inlay | sed 's/-linlay/-l:libinlay.a/') -o by_pkgconfig_static
answers ./by_pkgconfig_static
if needs by_pkgconfig_static | grep inlay; then fail "the static consumer needs libinlay"; fi

echo "== one line of gcc"
gcc "$examples/simple.c" "-I$prefix/include" "-L$lib" "-Wl,-rpath,$lib" -linlay -o by_hand
answers ./by_hand "$prefix/share/inlay/models/pocket-7m"

echo "== the command"
said=$(env -i "$prefix/bin/inlay" generate "$prefix/share/inlay/models/pocket-7m" --prompt "Once upon a time," --max-tokens 8) || fail "inlay generate"
[ -n "$said" ] || fail "inlay generate says nothing"
ldd "$prefix/bin/inlay" | grep -F "$prefix" >/dev/null || fail "the command runs another libinlay"
