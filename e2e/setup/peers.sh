#!/bin/sh
# Build the Go peers (../peers): the real NRI runtime library behind JSON lines, and a minimal
# plugin on the Go stub. Built again only when a source, the module list or Go has changed.
# Result: $C2C_CACHE/peers/{adaptation,minimal}
. "$(dirname "$0")/common.sh"

PEERS="$(cd "$(dirname "$0")/../peers" && pwd)"
TARGET="$C2C_CACHE/peers"
NRI="$(sed -n 's|.*github.com/containerd/nri \(v[^ ]*\).*|\1|p' "$PEERS/go.mod")"

report() {
	echo "peers: Go NRI $NRI runtime library and plugin in $TARGET"
	exit 0
}

# What the binaries were made of.
stamp() {
	(cd "$PEERS" && go version && sha256sum go.mod go.sum adaptation/*.go minimal/*.go)
}

up_to_date() {
	[ -x "$TARGET/adaptation" ] && [ -x "$TARGET/minimal" ] &&
		[ "$STAMP" = "$(cat "$TARGET/stamp" 2>/dev/null)" ]
}

need go flock sha256sum
STAMP="$(stamp)" || unavailable "sources or Go not usable in $PEERS"
up_to_date && report
lock_cache
up_to_date && report

STAGING="$C2C_CACHE/.staging-peers"
LOG="$C2C_CACHE/peers.log"
rm -rf "$STAGING" && mkdir -p "$STAGING"
trap 'rm -rf "$STAGING"' EXIT
# Plugins in WebAssembly are nothing that the tests use, and cost a third of the build.
if ! (cd "$PEERS" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -p 2 -trimpath -buildvcs=false \
	-tags nri_no_wasm -ldflags "-s -w" -o "$STAGING/" ./adaptation ./minimal) >"$LOG" 2>&1; then
	unavailable "go build failed, see $LOG: $(tail -n 1 "$LOG")"
fi
printf '%s\n' "$STAMP" >"$STAGING/stamp"
mkdir -p "$TARGET"
# Renames, so that a running peer keeps its file.
for file in adaptation minimal stamp; do
	mv -f "$STAGING/$file" "$TARGET/$file"
done
report
