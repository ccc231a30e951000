# The program under test goes into the guest as /host/pilotlight, with the libraries it needs, under the host's own loader.
# Sourced by cases whose guest runs it.
guest_files_main() {
  local library
  mkdir -p "$1/host/lib"
  ldd "$PILOTLIGHT" | grep -o '/[^ ]*' | while read -r library; do install -m 755 "$library" "$1/host/lib/"; done
  install -m 755 "$PILOTLIGHT" "$1/host/program"
  strip "$1/host/program" 2>/dev/null || true
  printf '#!/bin/sh\nexec /host/lib/ld-linux-x86-64.so.2 --library-path /host/lib /host/program "$@"\n' >"$1/host/pilotlight"
  chmod +x "$1/host/pilotlight"
}
