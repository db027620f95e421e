# Shared by the provisioning scripts of the test bed; sourced, never run.
#
# Everything lands in one cache outside the checkout, so that a fresh clone on the
# same machine finds it again:
#   $C2C_CACHE/containerd/<version>/bin/{containerd,ctr,containerd-shim-runc-v2}
#   $C2C_CACHE/runc/<version>/bin/runc
#   $C2C_CACHE/busybox/<version>/bin/busybox          (static)
# Each script prints one line: what is there now, or why it cannot be had.
# Exit codes: 0 it is there, 3 it cannot be had on this machine.

set -eu

C2C_CACHE="${CLAIM2CORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nri-claim2core}"
export C2C_CACHE

unavailable() {
	echo "${0##*/}: cannot be had here: $*" >&2
	exit 3
}

need() {
	for tool in "$@"; do
		command -v "$tool" >/dev/null 2>&1 || unavailable "no $tool on this machine"
	done
}

# One maker at a time; the lock goes with the shell that holds it.
lock_cache() {
	mkdir -p "$C2C_CACHE"
	exec 9>"$C2C_CACHE/.lock"
	flock 9
}

# First path that matches the given pattern(s), or nothing.
first_of() {
	for path in "$@"; do
		[ -e "$path" ] && { printf '%s\n' "$path"; return 0; }
	done
	return 1
}
