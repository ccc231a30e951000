# Reservations by nvme-cli and by the kernel's ioctls, with two hosts: two controllers of this guest with NQNs and identifiers of their own,
# each with its own block device, since the kernel's multipath is off.
DMESG_ALLOW='multipathing not supported|[Rr]eservation [Cc]onflict|critical (reservation|target|nexus)|I/O Cmd|I/O error, dev nvme|receive failed|failed to send request|starting error recovery|Reconnecting in|Failed reconnect|failed to connect socket|Successfully reconnected|failed nvme_keep_alive|keep_?alive|Reservation (Log|Notif)|preempt'
FIRST=/dev/nvme0n1 SECOND=/dev/nvme1n1
FIRST_ID=11111111-1111-4111-8111-111111111111 SECOND_ID=22222222-2222-4222-8222-222222222222

[ "$(cat /sys/module/nvme_core/parameters/multipath)" = N ] || fail "multipath is on"

# host_connect ID: as the host of this identifier. Without nvme-cli, which looks for a connection of any host.
host_connect() {
  echo "transport=tcp,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$1,hostid=$1,reconnect_delay=1,ctrl_loss_tmo=120" \
    >/dev/nvme-fabrics || fail "connect $1"
}
# report DEVICE FIELD: the number of a field; of regctlext, or its hosts (extended data), the first.
report() {
  nvme resv-report "$1" --eds -o json >/tmp/report 2>&1 || { cat /tmp/report; fail "report of $1"; }
  grep -o "\"$2\" *: *\"\?[0-9a-f]*" /tmp/report | sed 's/.*[: "]//'
}
# holds TYPE KEYS: the type of the reservation and the registered keys, in order, as both hosts see them.
holds() {
  local device
  for device in $FIRST $SECOND; do
    [ "$(report $device rtype)" = "$1" ] || { cat /tmp/report; fail "$device: type $(report $device rtype) instead of $1"; }
    [ "$(report $device rkey | sort -n | tr '\n' ' ')" = "$2" ] || { cat /tmp/report; fail "$device: keys $(report $device rkey | tr '\n' ' ') instead of $2"; }
  done
}
register() { expect "register $*" nvme resv-register "$@"; }
acquire() { expect "acquire $*" nvme resv-acquire "$@"; }
release() { expect "release $*" nvme resv-release "$@"; }
reads() { dd if="$1" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; }
writes() { dd if=/dev/zero of="$1" bs=4k count=1 oflag=direct 2>/dev/null; }
# access DEVICE read|- write|-: what the host may do.
access() {
  local may
  if reads "$1"; then may=read; else may=-; fi
  [ "$may" = "$2" ] || fail "$1: reads $may instead of $2"
  if writes "$1"; then may=write; else may=-; fi
  [ "$may" = "$3" ] || fail "$1: writes $may instead of $3"
}

step "two hosts"
host_connect $FIRST_ID
wait_block $FIRST
host_connect $SECOND_ID
wait_block $SECOND
access $FIRST read write
access $SECOND read write
expect "id-ns" nvme id-ns $FIRST -o json
grep -q '"rescap" *: *255' /tmp/expect.out || { cat /tmp/expect.out; fail "not every type, with persistence"; }

step "the steps of blktests nvme/054"
holds 0 ""
register $FIRST --nrkey=4 --rrega=0
holds 0 "4 "
register $FIRST --crkey=4 --nrkey=5 --rrega=2
holds 0 "5 "
acquire $FIRST --crkey=5 --rtype=1 --racqa=0
holds 1 "5 "
acquire $FIRST --crkey=5 --prkey=5 --rtype=2 --racqa=1
holds 2 "5 "
release $FIRST --crkey=5 --rtype=2 --rrela=0
holds 0 "5 "
register $FIRST --crkey=5 --nrkey=4 --rrega=1
holds 0 ""

# type, and what a registered and an unregistered host may do
step "six types"
for row in "1 read - read -" "2 - - - -" "3 read write read -" "4 read write - -" "5 read write read -" "6 read write - -"; do
  set -- $row
  register $FIRST --nrkey=1 --rrega=0
  register $SECOND --nrkey=2 --rrega=0
  acquire $FIRST --crkey=1 --rtype="$1" --racqa=0
  holds "$1" "1 2 "
  access $FIRST read write
  access $SECOND "$2" "$3"
  refuse "a second acquire" nvme resv-acquire $SECOND --crkey=2 --rtype=$((3 - ($1 == 3) * 2)) --racqa=0
  register $SECOND --crkey=2 --rrega=1
  access $SECOND "$4" "$5"
  refuse "a release by another host" nvme resv-release $SECOND --crkey=1 --rtype="$1" --rrela=0
  release $FIRST --crkey=1 --rtype="$1" --rrela=0
  access $SECOND read write
  register $FIRST --crkey=1 --rrega=1
  holds 0 ""
done

step "preempt, preempt and abort, clear"
register $FIRST --nrkey=1 --rrega=0
register $SECOND --nrkey=2 --rrega=0
acquire $FIRST --crkey=1 --rtype=1 --racqa=0
acquire $SECOND --crkey=2 --prkey=1 --rtype=1 --racqa=1
holds 1 "2 "
access $FIRST read -
access $SECOND read write
expect "notification" nvme resv-notif-log /dev/nvme0
grep -q 'Page Type.*: 1' /tmp/expect.out || { cat /tmp/expect.out; fail "no notification of a preempted registration"; }
register $FIRST --nrkey=1 --rrega=0
# With requests in progress, which end with the answer or an error.
dd if=/dev/zero of=$SECOND bs=64k count=2000 oflag=direct 2>/dev/null &
writer=$!
acquire $FIRST --crkey=1 --prkey=2 --rtype=3 --racqa=2
if wait $writer; then fail "a preempted host wrote on"; fi
holds 3 "1 "
access $SECOND read -
release $FIRST --crkey=1 --rrela=1
holds 0 ""

step "the ioctls of the kernel" # which always ask for persistence
pr() { expect "reservation $*" blockcheck reservation "$@"; }
pr $FIRST register 0 7
pr $SECOND register 0 8
holds 0 "7 8 "
pr $FIRST reserve 7 1
holds 1 "7 8 "
access $SECOND read -
refuse "a reservation of another host" blockcheck reservation $SECOND reserve 8 1
refuse "a wrong key" blockcheck reservation $FIRST release 9 1
pr $FIRST release 7 1
access $SECOND read write
pr $FIRST reserve 7 3
pr $SECOND preempt 8 7 3
holds 3 "8 "
pr $FIRST register 0 7
pr $FIRST preempt-abort 7 8 5
holds 5 "7 "
pr $FIRST clear 7
holds 0 ""

step "a reservation survives the server"
pr $FIRST register 0 7
pr $FIRST reserve 7 1
host kill
host start
within 60 "the first host again" reads $FIRST
within 60 "the second host again" reads $SECOND
holds 1 "7 "
access $FIRST read write
access $SECOND read -
pr $FIRST clear 7
access $SECOND read write

expect "disconnect" nvme disconnect -n "$NQN"
within 10 "the end of the controllers" test ! -e /dev/nvme0
