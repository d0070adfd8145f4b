#!/usr/bin/env bash
# Makes the .deb packages; checks what they hold and depend on; installs them with apt in a new, minimal Debian, runs the command
# there, and removes them.
# shellcheck source=support.sh
. "$(dirname "$0")/support.sh"
need cpack dpkg-deb dpkg-shlibdeps file

(cd "$BUILD" && cpack --config CPackConfig.cmake -B "$work/packages") >"$work/log" 2>&1 || { tail -40 "$work/log"; fail "cpack"; }
cd "$work/packages"
version=$(dpkg-deb -f libinlay0_*.deb Version)
for package in libinlay0 libinlay-dev inlay; do
  [ "$(dpkg-deb -f "$package"_*.deb Package Version | xargs)" = "Package: $package Version: $version" ] || fail "no package $package $version"
done

# depends PACKAGE DEPENDENCY...
depends() {
  local package=$1 list dependency
  shift
  list=", $(dpkg-deb -f "$package"_*.deb Depends),"
  for dependency in "$@"; do
    case $list in *", $dependency,"* | *", $dependency ("*) ;; *) fail "$package does not depend on $dependency but on $list" ;; esac
  done
}
depends libinlay-dev "libinlay0 (= $version)"
depends inlay "libinlay0 (= $version)" libc6
depends libinlay0 libc6
mkdir contents
for package in ./*.deb; do
  dpkg-deb -x "$package" contents
  dpkg-deb --ctrl-tarfile "$package" | tar -xf - -C contents
done
dpkg-deb --ctrl-tarfile libinlay0_*.deb | tar -tf - | grep -F shlibs >/dev/null || fail "libinlay0 has no shlibs"
library=$(find contents/usr/lib -name 'libinlay.so.0')
arch=$(basename "$(dirname "$library")")
# Each library it needs is in a package it depends on.
for name in $(needs "$library"); do
  case $name in libc.so.* | libm.so.* | ld-linux*) continue ;; esac
  depends libinlay0 "$(dpkg -S "*/$arch/$name" | sed -n '1s/:.*//p')"
done
for package in libinlay0 libinlay-dev inlay; do [ -f contents/usr/share/doc/$package/copyright ] || fail "$package has no copyright"; done
for file in usr/include/inlay/inlay.h usr/include/inlay/inlay.hpp usr/bin/inlay usr/share/inlay/models/pocket-7m/model.safetensors; do
  [ -f contents/$file ] || fail "no $file"
done
if find contents -perm /022 ! -type l | grep .; then fail "others may write these"; fi
echo "Packages: $(stat -c '%n %s' ./*.deb | xargs)"

need mmdebstrap
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
[ "$(id -u)" -eq 0 ] || [ "$(cat /proc/sys/kernel/unprivileged_userns_clone 2>/dev/null || echo 1)" = 1 ] || skip "no chroot: neither root nor user namespaces"
cat >"$work/inside.sh" <<'EOF'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq --no-install-recommends /packages/*.deb >/packages/log 2>&1 || { cat /packages/log; exit 1; }
cd /tmp
inlay generate /usr/share/inlay/models/pocket-7m --prompt "Once upon a time," --max-tokens 8 >/packages/said
apt-get purge -qq inlay libinlay-dev libinlay0 >/packages/log 2>&1 || { cat /packages/log; exit 1; }
find / -xdev -name '*inlay*' -not -path '/packages/*' -not -path '/proc/*' -not -path '/var/log/*' >/packages/left
EOF
chmod 755 "$work"
mkdir in out
cp ./*.deb "$work/inside.sh" in
# In namespaces of its own, so that no mount outlives this test however it ends.
isolate=()
[ "$(id -u)" -eq 0 ] && unshare --mount-proc --mount --pid --fork true 2>/dev/null && isolate=(unshare --mount-proc --mount --pid --fork --kill-child)
if ! TMPDIR=$work timeout -k 30 900 "${isolate[@]}" mmdebstrap --variant=apt --quiet \
  --customize-hook="mkdir \"\$1/packages\"" --customize-hook="copy-in $(printf '%s ' "$PWD"/in/*) /packages" \
  --customize-hook="chroot \"\$1\" sh /packages/inside.sh" \
  --customize-hook="copy-out /packages/said /packages/left $PWD/out" "$suite" /dev/null >"$work/log" 2>&1; then
  grep -E 'Could not resolve|Failed to fetch|Temporary failure|Operation not permitted|[Pp]ermission denied' "$work/log" && skip "no new Debian can be made here"
  tail -40 "$work/log"
  fail "the packages in a new Debian"
fi
[ -s out/said ] || fail "inlay generate says nothing in a new Debian"
[ ! -s out/left ] || fail "purging leaves $(cat out/left)"
echo "In a new Debian: $(head -c 80 out/said)"
