BACKING=file
SIZE_MIB=64
CPUS=2
host_resize() { peer_resize "$1"; }
