# No external target: it runs in the guest, on a device built from a QEMU disk and faults.
. "$HARNESS/program.sh"
guest_program pilotlight
NEEDS_SERVER=no
CAPTURE=no
SIZE_MIB=32
GUEST_QEMU=(-drive "file=$DISK,format=raw,if=none,id=disk" -device virtio-blk-pci,drive=disk,write-cache=on)
