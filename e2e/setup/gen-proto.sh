#!/usr/bin/env bash
# Generate the message modules from the .proto files; with --check, compare instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
protos=(nri_claim2core/nri/nri.proto nri_claim2core/nri/ttrpc.proto nri_claim2core/lab/proto/cri.proto)
out=.
if [ "${1:-}" = --check ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
.venv/bin/python -m grpc_tools.protoc -I. --python_out="$out" --pyi_out="$out" "${protos[@]}"
[ "$out" = . ] && exit 0
for proto in "${protos[@]}"; do
	for suffix in _pb2.py _pb2.pyi; do
		file=${proto%.proto}$suffix
		if ! cmp -s "$file" "$out/$file"; then
			echo "$file is not what $proto generates: run make proto" >&2
			exit 1
		fi
	done
done
echo "generated messages are up to date"
