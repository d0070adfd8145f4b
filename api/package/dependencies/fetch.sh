#!/usr/bin/env bash
# Fetches the sources of what a self-contained libinlay.so has inside: Debian's source packages of the versions installed
# here, checked by apt, into FOLDER/{abseil,protobuf,highway}. The system's own apt configuration stays as it is.
#   fetch.sh FOLDER
set -euo pipefail
packages=(libabsl-dev libprotobuf-dev libhwy-dev)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$folder"

wanted=$(dpkg-query -W -f='${source:Package}=${source:Version}\n' "${packages[@]}")
[ -f fetched ] && [ "$(cat fetched)" = "$wanted" ] && exit 0
command -v dpkg-source >/dev/null || { echo "fetch.sh needs dpkg-source (package dpkg-dev)" >&2; exit 1; }
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

names=(abseil protobuf highway)
rm -rf fetching "${names[@]}"
mkdir -p fetching/lists/partial
cd fetching
key=/usr/share/keyrings/debian-archive-keyring.gpg
cat >sources.list <<EOF
deb-src [signed-by=$key] http://deb.debian.org/debian $suite main
deb-src [signed-by=$key] http://deb.debian.org/debian $suite-updates main
deb-src [signed-by=$key] http://deb.debian.org/debian-security $suite-security main
EOF
apt=(apt-get -qq -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$PWD/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
"${apt[@]}" update
# shellcheck disable=SC2086
"${apt[@]}" source $wanted >apt.log 2>&1 || {
  cat apt.log >&2
  echo "Sources of the installed versions are not to be had; apt-get upgrade may help." >&2
  exit 1
}
for name in "${names[@]}"; do mv "$name"-*/ "../$name"; done
cd ..
rm -rf fetching
echo "$wanted" >fetched
