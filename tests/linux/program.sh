# A program of this repository in the guest as /host/NAME, with its libraries, under the host's own loader. Sourced by cases whose guest
# runs one.
PILOTLAB=${PILOTLAB:-$(dirname "$PILOTLIGHT")/pilotlab}

# guest_program NAME: pilotlight or pilotlab.
guest_program() {
  GUEST_PROGRAM=$1 GUEST_PROGRAM_PATH=$PILOTLIGHT
  [[ $1 != pilotlab ]] || GUEST_PROGRAM_PATH=$PILOTLAB
  [[ -x $GUEST_PROGRAM_PATH ]] || die "no program at $GUEST_PROGRAM_PATH: cargo build -p $1, or set ${1^^}"
}

# program_files DIR: the program's files. The guest of the case has them; a case whose program is in other guests unsets that.
guest_files_main() { program_files "$1"; }
program_files() {
  local library
  mkdir -p "$1/host/lib"
  ldd "$GUEST_PROGRAM_PATH" | grep -o '/[^ ]*' | while read -r library; do install -m 755 "$library" "$1/host/lib/"; done
  install -m 755 "$GUEST_PROGRAM_PATH" "$1/host/program"
  strip "$1/host/program" 2>/dev/null || true
  printf '#!/bin/sh\nexec /host/lib/ld-linux-x86-64.so.2 --library-path /host/lib /host/program "$@"\n' >"$1/host/$GUEST_PROGRAM"
  chmod +x "$1/host/$GUEST_PROGRAM"
}
