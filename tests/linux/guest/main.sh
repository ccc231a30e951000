# Runs the case with the functions of lib.sh, then checks the kernel's log.
set -eu
. /case/env
. /case/lib.sh

trap 'code=$?; [ $code -eq 0 ] || { echo "--- the case failed with $code; kernel log:"; dmesg | tail -25; }' EXIT
step "kernel $(uname -r)"
. /case/case.sh
check_kernel_log
step "passed"
