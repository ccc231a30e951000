# No external target: the guest runs the server itself, on two processors.
. "$HARNESS/program.sh"
guest_program pilotlight
NEEDS_SERVER=no
CAPTURE=no
CPUS=2
