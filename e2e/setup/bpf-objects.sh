#!/bin/sh
# Compile each bpf/*.bpf.c to nri_claim2core/bpfmap/objects/; nothing to do while nothing changed.
# Without a clang of 15 or later: code 3 and the reason, and what needs the objects skips by name.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/clang.sh"

SOURCE="$(cd "$(dirname "$0")/../../bpf" && pwd)"
TARGET="$(cd "$(dirname "$0")/../../nri_claim2core/bpfmap" && pwd)/objects"

CLANG="$(find_clang)" || unavailable "no clang of 15 or later: run e2e/setup/bpf.sh"
need sha256sum
STAMP="$(cat "$SOURCE"/*.h "$SOURCE"/*.c "$0" | sha256sum; "$CLANG" --version | head -n 1)"
if [ "$STAMP" = "$(cat "$TARGET/stamp" 2>/dev/null)" ]; then
	echo "bpf-objects: up to date in $TARGET"
	exit 0
fi
mkdir -p "$TARGET"
rm -f "$TARGET/stamp"
status=0
for source in "$SOURCE"/*.bpf.c; do
	object="$TARGET/$(basename "${source%.c}").o"
	# Paths of this machine are no part of the object. Callbacks take what the kernel gives.
	if (cd "$SOURCE" && "$CLANG" -target bpf -mcpu=v3 -O2 -g -nostdinc \
		-Wall -Wextra -Werror -Wno-unused-parameter \
		-ffile-prefix-map="$SOURCE=bpf" -fdebug-compilation-dir=. \
		-c "$(basename "$source")" -o "$object.new"); then
		mv "$object.new" "$object"
	else
		status=1
	fi
done
[ "$status" = 0 ] || exit 1
printf '%s\n' "$STAMP" >"$TARGET/stamp"
echo "bpf-objects: $(cd "$TARGET" && ls ./*.bpf.o | tr '\n' ' ')by $("$CLANG" --version | head -n 1)"
