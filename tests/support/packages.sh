# Sourced by tests/run.sh and examples/quickstart.sh: installs Debian packages that are missing, and says which.
# Usage: need_packages PACKAGE...

inlay_build_packages="g++ cmake ninja-build pkg-config ccache libabsl-dev libprotobuf-dev protobuf-compiler libhwy-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev"
inlay_test_packages="libgtest-dev libgmock-dev clang libclang-rt-dev dpkg-dev file mmdebstrap abigail-tools"
inlay_binding_packages="swig golang-go default-jdk-headless default-jre junit5 xvfb xauth fonts-dejavu-core mono-mcs mono-runtime"

need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "Installing: ${missing[*]}"
  local run=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Not root and no sudo: install these packages, then run this again." >&2; return 1; }
    run=(sudo)
  fi
  "${run[@]}" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
