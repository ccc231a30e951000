# The statements of docs/operate/connect.md: the defaults of the timeouts, a host that connects by /etc/nvme/discovery.conf as at boot, and its
# requests while the server is down.
attribute() { cat "/sys/class/nvme/$1/$2"; }
has() { [ "$(attribute "$1" "$2")" = "$3" ] || fail "$2 of $1 is $(attribute "$1" "$2"), not $3"; }
nvme1_is() { [ "$(attribute nvme1 state)" = "$1" ]; }
read_block() { dd if="$NAMESPACE" of=/tmp/block bs=4k count=1 iflag=direct; }

step "the defaults"
connect
has nvme0 ctrl_loss_tmo 600
has nvme0 reconnect_delay 10
has nvme0 fast_io_fail_tmo off
has nvme0 kato 5
disconnect

step "discovery.conf"
mkdir -p /etc/nvme
echo "--transport=tcp --traddr=$ADDRESS --trsvcid=$PORT --persistent --ctrl-loss-tmo=-1 --reconnect-delay=1" >/etc/nvme/discovery.conf
expect "connect-all" nvme connect-all
within 15 "a namespace" any_namespace
for name in nvme0 nvme1; do
  has $name ctrl_loss_tmo off
  has $name reconnect_delay 1
done
has nvme0 cntrltype discovery
has nvme0 kato 30
has nvme1 cntrltype io
expect "connect-all again" nvme connect-all
[ ! -e /sys/class/nvme/nvme2 ] || fail "connect-all has connected a second time"

# The rest of the case restarts the server.
DMESG_ALLOW='will reconnect forever|failed nvme_keep_alive|starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|receive failed|reading non-mdts|failed to send request|I/O error|failfast expired|no usable path|no available path'
step "requests wait for a server that is away"
host stop
within 20 "its absence" nvme1_is connecting
read_block >/tmp/read.out 2>&1 &
reader=$!
usleep 1500000
kill -0 $reader || { cat /tmp/read.out; fail "the read has ended"; }
host start
within 30 "the reconnect" nvme1_is live
wait $reader || { cat /tmp/read.out; fail "the read has failed"; }

step "with fast_io_fail_tmo they fail, and the device stays"
echo 1 >/sys/class/nvme/nvme1/fast_io_fail_tmo
has nvme1 fast_io_fail_tmo 1
host stop
within 20 "its absence" nvme1_is connecting
refuse "the read" read_block
block_device "$NAMESPACE"
host start
within 30 "the reconnect" nvme1_is live
expect "the read" read_block

expect "disconnect-all" nvme disconnect-all
[ ! -e /sys/class/nvme/nvme0 ] || fail "the discovery controller is left"
