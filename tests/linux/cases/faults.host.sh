# No target on this side: it runs in the guest, on a device that is made of a disk of QEMU's and of faults.
. "$HARNESS/program.sh"
guest_program pilotlight
NEEDS_SERVER=no
CAPTURE=no
SIZE_MIB=32
GUEST_QEMU=(-drive "file=$DISK,format=raw,if=none,id=disk" -device virtio-blk-pci,drive=disk,write-cache=on)
