# Has the server of a case read its configuration again. Sourced by cases on the host.

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
