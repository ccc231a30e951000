# Has the server of a case read its configuration again, and looks at its log. Sourced by cases on the host.

reloads() { cat "$OUT"/server*.log | grep -c 'configuration read again' || true; }

# SIGHUP; the new configuration is in force on return.
reload() {
  local before
  before=$(reloads)
  kill -HUP "$(peer_pid)"
  until [[ $(reloads) -gt $before ]]; do
    [[ -e /proc/$(peer_pid) ]] || die "the server has ended"
    sleep 0.05
  done
}

# host_logged NUMBER: lines of the server's log so far; with TEXT, that a later line has it.
host_logged() {
  local from=${1:-}
  [[ -n $from ]] || { wc -l <"$OUT/server.log"; return; }
  shift
  soon 10 logged_since "$from" "$*" || { tail -n "+$from" "$OUT/server.log"; return 1; }
}
logged_since() { tail -n "+$1" "$OUT/server.log" | grep -qF "$2"; }
