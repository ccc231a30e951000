BACKING=file
SIZE_MIB=64
CPUS=2
host_resize() { peer_resize "$1"; }
peer_arguments() { peer_arguments_shrinking; }
