# Two servers, each in a guest, share one disk: QEMU's storage daemon exports it to each of them. This side is the cluster manager: it decides
# which server is active, and fences the other one first, by the monitors of QEMU.
[[ $PEER == pilotlight ]] || die "failover: only against pilotlight"
. "$HARNESS/program.sh"
guest_program pilotlight
unset -f guest_files_main
guest_files_a() { program_files "$1"; }
guest_files_b() { program_files "$1"; }
SIZE_MIB=64
CAPTURE=no

case_before() {
  local second
  second=$(free_port)
  echo "$second" >"$OUT/port.b"
  GUEST_ENV+="SECOND_PORT=$second"$'\n'
  monitor_of storage
  # A socket's path has at most 107 bytes.
  SOCKET_DIR=$(mktemp -d)
  trap 'finish; rm -rf "$SOCKET_DIR"' EXIT
  qemu_command
  "${QEMU[@]:0:3}" "$ROOT/usr/bin/qemu-storage-daemon" \
    --blockdev "driver=file,node-name=file,filename=$DISK,cache.direct=on" --blockdev driver=raw,node-name=disk,file=file \
    --nbd-server "addr.type=unix,addr.path=$SOCKET_DIR/disk" \
    --chardev "pipe,id=monitor,path=$OUT/storage.monitor" --monitor chardev=monitor >"$OUT/storage.log" 2>&1 &
  echo $! >"$OUT/storage.pid"
  monitor storage qmp_capabilities
}

# port NAME: the port of a server. path_of NAME: its address, in its guest.
port() { if [[ $1 == a ]]; then echo "$PORT"; else cat "$OUT/port.b"; fi; }
path_of() { echo "10.0.2.15:$(port "$1")"; }

monitor_of() { rm -f "$OUT/$1.monitor."{in,out}; mkfifo "$OUT/$1.monitor."{in,out}; }

# monitor NAME COMMAND [ARGUMENTS [EVENT]]: executes a command, and returns when it and the event are confirmed.
monitor() {
  local line returned=no event=${4:-}
  exec 5<>"$OUT/$1.monitor.in" 6<>"$OUT/$1.monitor.out"
  echo "{\"execute\":\"$2\",\"arguments\":${3:-{\}}}" >&5
  until [[ $returned == yes && -z $event ]]; do
    IFS= read -r -t 30 -u 6 line || { echo "$1: no answer to $2"; return 1; }
    case $line in
      *'"error"'*) echo "$1: $2: $line"; return 1 ;;
      *'"return"'*) returned=yes ;;
      *"\"${event:-none}\""*) event= ;;
    esac
  done
}

# ask NAME COMMAND: pilotlight COMMAND in the guest of a server.
ask() {
  local answer
  exec 5<>"$OUT/$1.ctl.in" 6<>"$OUT/$1.ctl.out"
  echo "$2" >&5
  IFS= read -r -t 60 -u 6 answer || { echo "server $1 does not answer to: $2"; return 1; }
  [[ $answer == ok* ]] || { echo "server $1: $2: $answer"; return 1; }
}

# server_start NAME: with its export of the disk. All of its paths are closed until it is told otherwise.
server_start() {
  # Bash passes a function's locals to its callees: this guest is not the case's.
  local name=$1 number CONTROLLERS=1-1000
  number=$(port "$name")
  [[ $name == a ]] || CONTROLLERS=1001-2000
  local GUEST_ENV="CONTROLLERS=$CONTROLLERS" NETDEV=",hostfwd=tcp:127.0.0.1:$number-10.0.2.15:$number" PORT=$number
  monitor storage block-export-add "{\"id\":\"$name\",\"type\":\"nbd\",\"name\":\"$name\",\"node-name\":\"disk\",\"writable\":true}"
  monitor_of "$name"
  guest_start "$name" "$HARNESS/cases/failover/server.sh" \
    -blockdev "driver=nbd,node-name=disk,server.type=unix,server.path=$SOCKET_DIR/disk,export=$name" \
    -device virtio-blk-pci,drive=disk \
    -chardev "pipe,id=monitor,path=$OUT/$name.monitor" -mon chardev=monitor,mode=control
  monitor "$name" qmp_capabilities
  soon 60 server_is_ready "$name" || { tail -30 "$OUT/$name.console" >&2; die "server $name does not start"; }
}
server_is_ready() { grep -q 'the server is ready' "$OUT/$1.console"; }

peer_start() {
  server_start a
  server_start b
}
peer_stop() {
  guest_stop a
  guest_stop b
  kill "$(cat "$OUT/storage.pid")" 2>/dev/null || true
}

host_start() { server_start "$1"; }
host_activate() { ask "$1" "path set $(path_of "$1") optimized"; }
# host_kill NAME: returns when the guest is off.
host_kill() {
  monitor "$1" quit
  soon 10 guest_is_off "$1"
  monitor storage block-export-del "{\"id\":\"$1\",\"mode\":\"hard\"}" BLOCK_EXPORT_DELETED
}
host_stop() { ask "$1" stop; }
# host_fence NAME: returns when nothing of the server can reach the disk or a host.
host_fence() {
  monitor storage block-export-del "{\"id\":\"$1\",\"mode\":\"hard\"}" BLOCK_EXPORT_DELETED
  monitor "$1" set_link '{"name":"n0","up":false}'
}
host_continue() { ask "$1" continue; }
# host_errors NAME: failed requests to the disk that the server's kernel has reported.
host_errors() { ask "$1" errors && sed -n 's/.*disk errors: //p' "$OUT/$1.console" | tail -n 1; }

host_after() { rm -rf "$SOCKET_DIR"; }
