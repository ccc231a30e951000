# No target: a drive emulated by QEMU on a file, which can be formatted. The program itself runs in the guest.
. "$HARNESS/program.sh"
guest_program pilotlab
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
SIZE_MIB=8
GUEST_QEMU=(-drive "file=$DISK,format=raw,if=none,id=disk,discard=unmap" -device nvme,serial=precondition,drive=disk)
