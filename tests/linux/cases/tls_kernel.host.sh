# Server and host in one guest, because the kernels of build machines often have no TLS: what each side sends is a record of its kernel.
. "$HARNESS/program.sh"
guest_program pilotlight
NEEDS_SERVER=no
CAPTURE=no
MEMORY_MIB=1024
tls_programs
ARCHIVES+=(fio.cpio)
