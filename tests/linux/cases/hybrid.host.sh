# No target: two drives emulated by QEMU, with two poll queues. Reads of one take 100 us; of the other 20 ms, compared to which the overhead
# of the emulated machine is small, so that shares of a read's time can be measured.
. "$HARNESS/program.sh"
guest_program pilotlab
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
MEMORY_MIB=1024
KERNEL_ARGS=nvme.poll_queues=2
GUEST_QEMU=(-blockdev driver=null-co,node-name=fast,size=1073741824,latency-ns=100000,read-zeroes=on
  -device nvme,serial=fast,drive=fast
  -blockdev driver=null-co,node-name=slow,size=1073741824,latency-ns=20000000,read-zeroes=on
  -device nvme,serial=slow,drive=slow)
