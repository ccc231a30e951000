# No external target: the guest runs the server itself, on two processors, with cgroups of version 2.
. "$HARNESS/program.sh"
guest_program pilotlight
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
