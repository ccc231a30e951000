# A target with two cores, a namespace in memory and one on a disk (Linux AIO); verified load on each. Between the loads `sandman` puts the
# second core to sleep in `wfe`. Run by main.sh with the functions of lib.sh.
verified() {
  expect "load on namespace $1" /host/pilotlight load --yield --nsid "$1" --rw randrw --bs 8k --iodepth 8 --numjobs 2 --size 4m \
    --number_ios 200 --verify --fsync 64
}
wakes() { /host/pilotlight status | sed -n 's/^from monitor-wait *//p'; }
has_slept() { [ -n "$(wakes)" ]; }

grep -m1 ^Features /proc/cpuinfo | grep -ow 'evtstrm\|wfxt'
wait_block /dev/vda
/host/pilotlight serve --listen 127.0.0.1:4420 --namespace mem:32MiB --namespace file:/dev/vda --cores 0,1 >/tmp/serve.log 2>&1 &
server=$!
trap 'code=$?; [ $code -eq 0 ] || { /host/pilotlight status; cat /tmp/serve.log; dmesg | tail -25; }' EXIT
within 60 "an answer of the server" /host/pilotlight status
for namespace in 1 2; do
  step "namespace $namespace"
  verified $namespace
  sed -n '2,$p' /tmp/expect.out
done
step "a core that slept in a wait instruction"
within 20 "such a sleep" has_slept
wakes
kill $server
wait $server || fail "the server's end"
