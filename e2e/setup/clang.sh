# Find a clang of 15 or later; sourced after common.sh.
#
# find_clang prints its path, or fails: $CLANG, then PATH, then what bpf.sh has unpacked.
find_clang() {
	for clang in ${CLANG:-} clang clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 \
		"$C2C_CACHE"/clang/*/bin/clang; do
		path="$(command -v "$clang" 2>/dev/null)" || continue
		major="$("$path" -dumpversion 2>/dev/null | cut -d. -f1)"
		[ "${major:-0}" -ge 15 ] && { printf '%s\n' "$path"; return 0; }
	done
	return 1
}
