# Functions of cases with several paths to one namespace. Sourced by cases, after lib.sh. A path is named by its port; $load is the process of a verified
# load, whose output is in /tmp/load.
# controller PORT: sets CONTROLLER to the directory of the subsystem's controller by this port.
controller() {
  for CONTROLLER in /sys/class/nvme/nvme*; do
    [ "$(cat "$CONTROLLER/subsysnqn" 2>/dev/null)" = "$NQN" ] || continue
    case $(cat "$CONTROLLER/address") in *"trsvcid=$1"*) return ;; esac
  done
  return 1
}
# path PORT: sets PATH_ to the directory of the path to the namespace by this port.
path() {
  controller "$1" || return 1
  for PATH_ in "$CONTROLLER"/nvme*c*n1; do [ -e "$PATH_/ana_state" ] && return; done
  return 1
}
controller_is() { controller "$1" && [ "$(cat "$CONTROLLER/state")" = "$2" ]; }
path_is() { path "$1" && [ "$(cat "$PATH_/ana_state")" = "$2" ] && controller_is "$1" live; }
# requests PORT: finished ones by this path. idle PORT: none is in progress.
requests() { path "$1" || fail "no path by $1"; awk '{ print $1 + $5 + $16 }' "$PATH_/stat"; }
idle() { path "$1" && [ "$(awk '{ print $9 }' "$PATH_/stat")" = 0 ]; }
passed() { [ $(($(requests "$1") - $2)) -ge "$3" ]; }

loaded() { kill -0 $load || { cat /tmp/load; fail "the load has ended"; }; }
# carries PORT [OTHER]: this path has requests, and the other one has none.
carries() {
  local before other=0
  before=$(requests "$1")
  [ -z "${2:-}" ] || { within 10 "the last request by $2" idle "$2"; other=$(requests "$2"); }
  within 20 "requests by port $1" passed "$1" "$before" 100
  [ -z "${2:-}" ] || [ "$(requests "$2")" = "$other" ] || fail "$(($(requests "$2") - other)) requests by port $2"
  loaded
}
