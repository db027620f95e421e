#!/usr/bin/env bash
# Bring the BPF objects, the real runtimes and the Go peers; each says what it made or why not.
# What cannot be had here is skipped by name later, so only a broken script fails this one.
set -uo pipefail
cd "$(dirname "$0")"
status=0
for script in bpf.sh bpf-objects.sh containerd-distro.sh containerd-module.sh peers.sh; do
	[ -x "$script" ] || continue
	"./$script"
	code=$?
	if [ "$code" != 0 ] && [ "$code" != 3 ]; then
		echo "setup: $script failed with code $code" >&2
		status=$code
	fi
done
exit "$status"
