#!/bin/sh
# Regenerate the message classes of the bed's CRI subset after editing cri.proto.
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	nri_claim2core/lab/proto/cri.proto
