# Boots a guest and serves its calls. Sourced by run.sh.
#
# A guest NAME leaves $OUT/NAME.console (its output), $OUT/NAME.pcap (its frames), and two FIFOs, NAME.ctl.in and NAME.ctl.out: its second
# serial line, over which it calls functions of this side (`host` in guest/lib.sh), one line each.

guest_pid() { cat "$OUT/$1.pid"; }                     # of `timeout`, whose one child is QEMU
guest_qemu_pid() { local pid; pid=$(guest_pid "$1"); awk '{print $1}' "/proc/$pid/task/$pid/children"; }
guest_is_off() { ! kill -0 "$(guest_pid "$1")" 2>/dev/null; }

# build_tool DIR: the verifier that runs in the guest: Rust without dependencies, linked statically. Cases run concurrently, and rustc names
# its temporary files after the program: one case compiles it, in a separate folder, and the others wait.
build_tool() {
  local tools=$REPO/target/linux-tools
  mkdir -p "$tools"
  (
    flock 9
    if [[ ! -e $tools/blockcheck || -n $(find "$HARNESS/tools" -name "*.rs" -newer "$tools/blockcheck") ]]; then
      rm -rf "$tools/build"
      mkdir "$tools/build"
      rustc --edition 2024 -O -C target-feature=+crt-static -o "$tools/build/blockcheck" "$HARNESS/tools/blockcheck.rs"
      mv "$tools/build/blockcheck" "$tools/blockcheck"
    fi
  ) 9>"$tools/lock" || return
  install "$tools/blockcheck" "$1/bin/blockcheck"
}

# tls_programs: programs of the host for TLS in the guest. Those of Debian 13, which derive keys against the specification (`OLD`); with
# the kernel `backports` those of Debian testing.
tls_programs() {
  local suite=trixie
  OLD=true
  [[ $KERNEL != backports ]] || suite=forky OLD=false
  [[ -e $CACHE/tls-$suite.stamp ]] || die "the programs for TLS are not prepared: run tests/linux/prepare.sh $KERNEL"
  ARCHIVES+=("tls-$suite.cpio")
  GUEST_ENV+="OLD=$OLD"$'\n'
}

# case_archive NAME SCRIPT: init, the functions and the case, as an archive on top of the initramfs.
case_archive() {
  local dir=$OUT/$1.case
  mkdir -p "$dir/case" "$dir/bin"
  install -m 755 "$HARNESS/guest/init" "$dir/init"
  install -m 644 "$HARNESS"/guest/*.sh "$dir/case/"
  install -m 644 "$2" "$dir/case/case.sh"
  build_tool "$dir"
  if declare -F "guest_files_$1" >/dev/null; then "guest_files_$1" "$dir"; fi
  cat >"$dir/case/env" <<ENV
ADDRESS=${GUEST_TARGET:-10.0.2.2}
PORT=$PORT
NQN=$NQN
SIZE_MIB=$SIZE_MIB
PEER=$PEER
GUEST_ADDRESS=${GUEST_ADDRESS:-10.0.2.15}
GATEWAY=${GUEST_GATEWAY:-10.0.2.2}
${GUEST_ENV:-}
ENV
  # Every archive is padded to 512 bytes, so the next one starts aligned.
  cat "$CACHE/kernel-$KERNEL/initramfs.cpio" ${ARCHIVES[@]+"${ARCHIVES[@]/#/$CACHE/}"} >"$OUT/$1.initrd"
  pack "$dir" >>"$OUT/$1.initrd"
  rm -rf "$dir"
}

# guest_start NAME SCRIPT [QEMU OPTION...]: boots; returns at once. NETWORK is the kind of network (default: the user network), and NETDEV
# its options; MAC the guest's address in it.
guest_start() {
  local name=$1 script=$2 capture=()
  shift 2
  case_archive "$name" "$script"
  case $CAPTURE in
    full) capture=(-object "filter-dump,id=dump,netdev=n0,file=$OUT/$name.pcap") ;;
    headers) capture=(-object "filter-dump,id=dump,netdev=n0,maxlen=256,file=$OUT/$name.pcap") ;;
  esac
  rm -f "$OUT/$name.ctl.in" "$OUT/$name.ctl.out"
  mkfifo "$OUT/$name.ctl.in" "$OUT/$name.ctl.out"
  qemu_command
  # -accel tcg: /dev/kvm is not used, because it may hang on a runner. One thread for all virtual processors: with a thread each, QEMU 7.2
  # sometimes fails while the kernel patches its own code ("Oops: int3" at boot). A case may set ACCEL.
  timeout --kill-after=5 "$TIMEOUT_S" "${QEMU[@]}" \
    -accel "${ACCEL:-tcg,thread=single}" -cpu max -smp "$CPUS" -m "$MEMORY_MIB" -M q35 -nodefaults -no-user-config -display none \
    -no-reboot -serial stdio -chardev pipe,id=ctl,path="$OUT/$name.ctl" -serial chardev:ctl \
    -netdev "${NETWORK:-user},id=n0${NETDEV:-}" -device "virtio-net-pci,netdev=n0,romfile=${MAC:+,mac=$MAC}" "${capture[@]}" \
    -kernel "$CACHE/kernel-$KERNEL/vmlinuz" -initrd "$OUT/$name.initrd" \
    -append "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable ${KERNEL_ARGS:-}" \
    ${GUEST_QEMU[@]+"${GUEST_QEMU[@]}"} "$@" \
    </dev/null >"$OUT/$name.console" 2>"$OUT/$name.qemu.log" &
  echo $! >"$OUT/$name.pid"            # a file, because the host's functions run in a subshell
  disown $!
}

# guest_serve NAME: answers the guest's calls until it is off. Sets STOOD_STILL if this process did not run for a while: then the machine
# was paused, and timeouts in guest and target are not their errors.
guest_serve() {
  local part line='' answer ctl=$OUT/$1.ctl before=$SECONDS
  exec 3<>"$ctl.in" 4<>"$ctl.out"
  until guest_is_off "$1"; do
    stood_still_since "$before"
    before=$SECONDS
    # At a timeout `read` returns the part of the line that it has read.
    IFS= read -r -t 0.5 -u 4 part || { line+=$part; continue; }
    line+=$part
    line=${line%$'\r'}
    say "$CASE: request of the guest: $line"
    # shellcheck disable=SC2086 # words of the guest's call
    if answer=$(set -e; host_call $line 2>&1); then echo "ok $answer" | tr '\n' ' ' >&3; else echo "err $answer" | tr '\n' ' ' >&3; fi
    echo >&3
    line='' before=$SECONDS
  done
  stood_still_since "$before"
  exec 3>&- 4>&-
}

stood_still_since() {
  ((SECONDS - $1 > 5)) || return 0
  STOOD_STILL=$((SECONDS - $1))
  say "$CASE: this machine was suspended for $STOOD_STILL s"
}

host_call() {
  local verb=$1
  shift
  declare -F "host_$verb" >/dev/null || { echo "no verb host_$verb"; return 1; }
  "host_$verb" "$@"
}

guest_stop() {
  [[ -e $OUT/$1.pid ]] || return 0
  kill "$(guest_pid "$1")" 2>/dev/null || true
  soon 8 guest_is_off "$1" || true
}

# guest_status NAME: the status in its last line; empty if there is none (panic, timeout).
guest_status() { sed -n 's/^LINUX-CASE-STATUS \([0-9]*\).*/\1/p' "$OUT/$1.console" | tail -1; }
