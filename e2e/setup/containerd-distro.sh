#!/bin/sh
# Bring the 2.1 series of containerd, runc and a static busybox from the distribution
# (another series with CLAIM2CORE_DISTRO_SERIES, say 1.7).
#
# The release that this machine runs may carry an older containerd, so its newer suites
# are asked too; nothing is installed.
. "$(dirname "$0")/common.sh"

SERIES="${CLAIM2CORE_DISTRO_SERIES:-2.1}"

have_all() {
	first_of "$C2C_CACHE"/containerd/"$SERIES".*/bin/containerd >/dev/null &&
		first_of "$C2C_CACHE"/runc/*/bin/runc >/dev/null &&
		first_of "$C2C_CACHE"/busybox/*/bin/busybox >/dev/null
}

report() {
	echo "containerd-distro: $(cd "$C2C_CACHE" && ls -d containerd/"$SERIES".* runc/* busybox/* | tr '\n' ' ')in $C2C_CACHE"
	exit 0
}

have_all && report
need flock
lock_cache
have_all && report

. "$(dirname "$0")/apt.sh"

# place <package> <cache name> <version> <binary>...
place() {
	package="$1" name="$2" version="$3"
	shift 3
	staging="$C2C_CACHE/.staging-$name-$version"
	rm -rf "$staging" && mkdir -p "$staging/bin"
	for binary in "$@"; do
		found="$(find "$WORK/root/$package" -type f -name "$binary" -perm -u+x | head -n 1)"
		[ -n "$found" ] || unavailable "package $package has no $binary"
		cp "$found" "$staging/bin/$binary"
	done
	mkdir -p "$C2C_CACHE/$name"
	rm -rf "$C2C_CACHE/$name/$version"
	mv "$staging" "$C2C_CACHE/$name/$version"
}

FOUND=""
for suite in $NEWER; do
	use_suites "$OWN" "$suite" || continue
	FOUND="$(version_of containerd "$SERIES.")"
	[ -n "$FOUND" ] && break
done
[ -n "$FOUND" ] || unavailable "no containerd $SERIES in $OWN $NEWER$(sed -n 's/^E: /: /p' "$WORK/update.log" | tail -n 1)"

fetch_package containerd "$FOUND"
place containerd containerd "$(upstream "$FOUND")" containerd ctr containerd-shim-runc-v2
"$C2C_CACHE/containerd/$(upstream "$FOUND")/bin/containerd" --version >/dev/null 2>&1 || {
	rm -rf "$C2C_CACHE/containerd/$(upstream "$FOUND")"
	unavailable "containerd $FOUND does not run with this machine's C library"
}

# runc and busybox of the machine's own release: they fit its kernel interfaces and libraries.
for package in runc busybox-static; do
	version="$(private apt-cache madison "$package" | grep -F " $OWN/" | awk -F'|' 'NR == 1 {gsub(/ /, "", $2); print $2}')"
	[ -n "$version" ] || unavailable "no $package in $OWN"
	fetch_package "$package" "$version"
	place "$package" "${package%-static}" "$(upstream "$version")" "${package%-static}"
done
report
