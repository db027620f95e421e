#!/bin/sh
# Bring a clang that compiles the BPF objects, and bpftool, the tests' second reader.
#
# BTF of 64-bit enums takes clang 15. One on PATH (or $CLANG) will do; else the distribution's
# newest is unpacked - some 50 MB to fetch, 250 MB on disk - with those of its libraries that
# this machine lacks. Result:
#   $C2C_CACHE/clang/<version>/bin/clang
#   $C2C_CACHE/bpftool/<version>/bin/bpftool
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/clang.sh"

have_bpftool() {
	first_of "$C2C_CACHE"/bpftool/*/bin/bpftool >/dev/null || command -v bpftool >/dev/null 2>&1
}

report() {
	echo "bpf: $("$(find_clang)" --version | head -n 1); $(have_bpftool && echo bpftool || echo "no bpftool")"
	exit 0
}

find_clang >/dev/null && have_bpftool && report
need flock
lock_cache
find_clang >/dev/null && have_bpftool && report

. "$(dirname "$0")/apt.sh"
use_suites "$OWN" || unavailable "no suite $OWN: $(tail -n 1 "$WORK/update.log")"

# What apt would newly install for a package on this machine; upgrades are not our business.
missing_for() {
	private apt-get -o Dir::State::status=/var/lib/dpkg/status --no-install-recommends \
		-s install "$1" 2>/dev/null | sed -n 's/^Inst \([^ ]*\) (.*/\1/p'
}

# unpack <tree> <package>...: several packages into one tree.
unpack() {
	tree="$1"
	shift
	rm -rf "$tree" && mkdir -p "$tree"
	for package in "$@"; do
		fetch_package "$package" "$(version_of "$package")"
		cp -a "$WORK/root/$package/." "$tree/"
		rm -rf "${WORK:?}/root/$package" "$WORK/debs/$package"_*
	done
}

# A launcher that gives a program of an unpacked tree its own libraries first.
launcher() {
	printf '#!/bin/sh\nroot=%s\nexport LD_LIBRARY_PATH=%s\nexec "$root%s" "$@"\n' \
		"$1" "$(find "$1" -name '*.so.*' -printf '%h\n' | sort -u | tr '\n' ':')" "$2"
}

install_clang() {
	for series in 21 20 19 18 17 16 15; do
		version="$(version_of "clang-$series")"
		[ -n "$version" ] && break
	done
	[ -n "$version" ] || unavailable "$OWN has no clang of 15 or later"
	tree="$C2C_CACHE/clang/$(upstream "$version")"
	packages="$(missing_for "clang-$series")"
	[ -n "$packages" ] || unavailable "apt does not say what clang-$series needs here"
	unpack "$tree" $packages
	mkdir -p "$tree/bin"
	launcher "$tree" "/usr/lib/llvm-$series/bin/clang" >"$tree/clang.new"
	chmod 755 "$tree/clang.new"
	"$tree/clang.new" --version >/dev/null 2>&1 || unavailable "clang-$series does not run here"
	mv "$tree/clang.new" "$tree/bin/clang"
}

install_bpftool() {
	version="$(version_of bpftool)"
	[ -n "$version" ] || { echo "bpf: $OWN has no bpftool" >&2; return 0; }
	tree="$C2C_CACHE/bpftool/$(upstream "$version")"
	unpack "$tree" bpftool
	mkdir -p "$tree/bin"
	launcher "$tree" /usr/sbin/bpftool >"$tree/bin/bpftool"
	chmod 755 "$tree/bin/bpftool"
}

find_clang >/dev/null || install_clang
have_bpftool || install_bpftool
report
