# Downloads and unpacks Debian packages under $CACHE without installing them. Sourced by prepare.sh and arm64/run.sh after common.sh.

ARCH=${ARCH:-amd64}

# apt_state SUITE: the folder of its lists.
apt_state() { if [[ $ARCH == amd64 ]]; then echo "$CACHE/apt/$1"; else echo "$CACHE/apt/$1-$ARCH"; fi; }

# apt_for SUITE COMMAND...: apt for $ARCH with separate sources and lists, and an empty list of installed packages (so that a dependency
# closure is complete on any machine).
apt_for() {
  local suite=$1 state command=$2
  state=$(apt_state "$suite")
  shift 2
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : >"$state/status"
  for s in "$suite debian" "$suite-security debian-security"; do
    [[ $s != *-backports-security* ]] || continue
    echo "deb [arch=$ARCH signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR/${s#* } ${s% *} main"
  done >"$state/sources.list"
  "$command" -q -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" \
    -o Dir::Cache::archives="$state/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o APT::Sandbox::User="$(id -un)" -o APT::Architecture=$ARCH -o APT::Architectures=$ARCH -o Acquire::Languages=none "$@"
}

update_lists() {
  local suite=$1
  [[ ${refresh:-no} == no && -e $(apt_state "$suite")/updated ]] && return
  say "package lists of $suite ($ARCH) from $MIRROR"
  apt_for "$suite" apt-get update >&2
  touch "$(apt_state "$suite")/updated"
}

# unpack SUITE DIR PACKAGE...: download and unpack into DIR.
unpack() {
  local suite=$1 dir=$2 debs=$CACHE/debs.$$
  shift 2
  mkdir -p "$debs" "$dir"
  (cd "$debs" && apt_for "$suite" apt-get download "$@" >&2)
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$dir"; done
  rm -rf "$debs"
}

# newest_image SUITE PACKAGE: the kernel package on which a package such as linux-image-cloud-amd64 currently depends.
newest_image() { apt_for "$1" apt-cache depends "$2" | awk '/Depends: linux-image/{print $2; exit}'; }
