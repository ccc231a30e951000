# No target: a drive emulated by QEMU, whose reads take 100 us and return zeros, with two poll queues.
. "$HARNESS/program.sh"
guest_program pilotlab
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
MEMORY_MIB=1024
ARCHIVES=(fio.cpio)
KERNEL_ARGS=nvme.poll_queues=2
GUEST_QEMU=(-blockdev driver=null-co,node-name=null,size=1073741824,latency-ns=100000,read-zeroes=on
  -device nvme,serial=completion,drive=null)
