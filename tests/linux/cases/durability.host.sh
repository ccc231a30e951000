NEEDS_SERVER=no
CPUS=2
DURABILITY=${DURABILITY:-honest}
DRIVE=${DRIVE:-virtio}
SIZE_MIB=32
LOG=$OUT/writes.log
GUEST_ENV="DURABILITY=$DURABILITY
DRIVE=$DRIVE"
case $DRIVE in
  virtio) DEVICES=(-device virtio-blk-pci,drive=recorded,write-cache=on) ;;
  scsi) DEVICES=(-device virtio-scsi-pci -device scsi-hd,drive=recorded,write-cache=on,dpofua=on) ;;
esac
# Partitions, in sectors of 512 bytes, as in crates/pilotlight/tests/linux/record.rs.
DATA_AT=2048
MARKS_AT=34816
PARTITION_SECTORS=30720

bytes_le32() { printf "\\\\x%02x\\\\x%02x\\\\x%02x\\\\x%02x" $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)); }

# A partition table with two entries: at byte 446, 16 bytes each, then 55 aa.
case_before() {
  local entry='\x00\xfe\xff\xff\x83\xfe\xff\xff'
  # shellcheck disable=SC2059 # the format is the data
  printf "$entry$(bytes_le32 $DATA_AT)$(bytes_le32 $PARTITION_SECTORS)$entry$(bytes_le32 $MARKS_AT)$(bytes_le32 $PARTITION_SECTORS)" |
    dd of="$DISK" bs=1 seek=446 conv=notrunc status=none
  printf '\x55\xaa' | dd of="$DISK" bs=1 seek=510 conv=notrunc status=none
  : >"$LOG"
}

# The record contains the flushes; this machine's disk need not flush, as it may be busy for longer than the kernel's command timeout.
GUEST_QEMU=(-blockdev "driver=blklogwrites,node-name=recorded,log-sector-size=512,file.driver=raw,file.file.driver=file,file.file.filename=$DISK,file.file.cache.no-flush=on,log.driver=file,log.filename=$LOG,log.cache.no-flush=on"
  "${DEVICES[@]}")

. "$HARNESS/program.sh"
guest_program pilotlight
