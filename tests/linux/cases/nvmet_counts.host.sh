# The guest is Linux's own target on two processors; the client is `pilotlight load` outside, through QEMU's user network, so that the guest
# does not count it. Takes minutes, and is in no list of tests.
#
# WINDOW_S=10     counting time of each load, in seconds
# ACCEL=OPTIONS   QEMU's accelerator (default tcg,thread=multi: a thread for each processor; kvm if stock kernels boot with it)
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
MEMORY_MIB=1024
ACCEL=${ACCEL:-tcg,thread=multi}
WINDOW_S=${WINDOW_S:-10}
GUEST_ENV="WINDOW_S=$WINDOW_S"
# Two drives whose reads take 100 us: `own` has a completion queue for each processor, `shared` one for both.
GUEST_QEMU=(
  -blockdev driver=null-co,node-name=null0,size=1073741824,latency-ns=100000,read-zeroes=on
  -device nvme,serial=own,drive=null0,max_ioqpairs=2
  -blockdev driver=null-co,node-name=null1,size=1073741824,latency-ns=100000,read-zeroes=on
  -device nvme,serial=shared,drive=null1,max_ioqpairs=1)
case_before() { NETDEV=",hostfwd=tcp:127.0.0.1:$PORT-10.0.2.15:$PORT"; }

# host load SUBSYSTEM OPTION...: 4 KiB random reads until `host stop`.
host_load() {
  local subsystem=$1
  shift
  "$PILOTLIGHT" load --target "127.0.0.1:$PORT" --nqn "$NQN:$subsystem" --bs 4k --size 512m --runtime 600s --yield "$@" \
    >"$OUT/load.log" 2>&1 </dev/null 3>&- 4>&- &
  echo $! >"$OUT/load.pid"
}
host_stop() {
  kill -0 "$(cat "$OUT/load.pid")" 2>/dev/null || { echo "the client has ended: $(tail -3 "$OUT/load.log")"; return 1; }
  kill -INT "$(cat "$OUT/load.pid")"
}
host_after() {
  sed -n '/^| load/,/^$/p' "$OUT/main.console" | tr -d '\r' | tee "$OUT/counts.md"
  [[ -s $OUT/counts.md ]]
}
