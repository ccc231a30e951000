BACKING=file
CPUS=2
MEMORY_MIB=768
ARCHIVES=(fio.cpio)

host_kill() { peer_kill; }
host_stop() { peer_stop; }
host_start() { peer_start; }
