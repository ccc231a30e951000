# An ext4 file system on the namespace: its contents survive a remount, fsck finds no error, and fstrim returns the
# space to the host and leaves zeros.
connect
step "mkfs, mount, write, fsync"
expect "mkfs" mkfs.ext4 -q -b 4096 -E nodiscard /dev/nvme0n1
mkdir -p /mnt
expect "mount" mount -t ext4 /dev/nvme0n1 /mnt
random_file /tmp/a 24576
mkdir /mnt/dir
expect "big file" dd if=/tmp/a of=/mnt/dir/big bs=256k conv=fsync
for i in $(seq 1 100); do echo "file $i" >"/mnt/dir/$i"; done
sync
expect "umount" umount /mnt

step "remount, compare"
expect "mount" mount -t ext4 /dev/nvme0n1 /mnt
cmp /tmp/a /mnt/dir/big || fail "the big file changed"
for i in $(seq 1 100); do [ "$(cat "/mnt/dir/$i")" = "file $i" ] || fail "file $i changed"; done
expect "filefrag" filefrag -e /mnt/dir/big
extent=$(sed -n 's/^ *0: *0\.\. *[0-9]*: *\([0-9]*\)\.\. *[0-9]*: *\([0-9]*\):.*/\1 \2/p' /tmp/expect.out)
[ -n "$extent" ] || { cat /tmp/expect.out; fail "no extent in filefrag's answer"; }
expect "umount" umount /mnt
expect "fsck" fsck.ext4 -fn /dev/nvme0n1

step "delete, fstrim"
expect "mount" mount -t ext4 /dev/nvme0n1 /mnt
start=${extent% *}
length=${extent#* }
host allocated
before=$REPLY
rm /mnt/dir/big
sync
expect "fstrim" fstrim -v /mnt
cat /tmp/expect.out
expect "umount" umount /mnt
host allocated
step "the backing file occupied $before KiB, now $REPLY"
[ "$REPLY" -le $((before - 20000)) ] || fail "fstrim gave nothing back: $before KiB before, $REPLY after"
zeros /dev/nvme0n1 $((start * 4)) $((length * 4)) || fail "the trimmed extent $start+$length does not read as zero"
expect "fsck" fsck.ext4 -fn /dev/nvme0n1
disconnect
