#!/bin/sh
# Bring the 2.1 series of containerd, runc and a static busybox from the distribution
# (another series with CLAIM2CORE_DISTRO_SERIES, say 1.7).
#
# The release that this machine runs may carry an older containerd, so its newer suites
# are asked too, through a private apt configuration: own lists, own status, nothing
# installed, no root needed. The mirror is the one that the machine's apt already uses.
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
need apt-get apt-cache dpkg flock
lock_cache
have_all && report

. /etc/os-release
OWN="${VERSION_CODENAME:-}"
case "${ID:-} ${ID_LIKE:-}" in
ubuntu*) ORIGIN=Ubuntu COMPONENTS="main universe" NEWER="$OWN-updates devel" ;;
*debian*) ORIGIN=Debian COMPONENTS=main NEWER="$OWN-backports trixie-backports forky sid trixie" ;;
*) unavailable "the suites of '${ID:-this distribution}' are not known" ;;
esac
[ -n "$OWN" ] || OWN=sid

KEYRING="/usr/share/keyrings/$(echo "$ORIGIN" | tr 'DU' 'du')-archive-keyring.gpg"
[ -r "$KEYRING" ] || unavailable "no archive keyring at $KEYRING"
# What apt would fetch for this release: works with and without fetched lists.
MIRROR="$(apt-get --print-uris update 2>/dev/null | sed -n "s|^'\(.*\)/dists/$OWN/.*|\1|p" | head -n 1)"
[ -n "$MIRROR" ] || unavailable "apt has no source for $ORIGIN $OWN"

WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK/lists/partial" "$WORK/cache/archives/partial" "$WORK/debs" "$WORK/root"
: >"$WORK/status"
cat >"$WORK/apt.conf" <<CONF
Dir::Etc::sourcelist "$WORK/bed.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$WORK/lists";
Dir::State::status "$WORK/status";
Dir::Cache "$WORK/cache";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
CONF
[ "$(id -u)" = 0 ] && echo 'APT::Sandbox::User "root";' >>"$WORK/apt.conf"
export APT_CONFIG="$WORK/apt.conf"

use_suites() {
	cat >"$WORK/bed.sources" <<SOURCES
Types: deb
URIs: $MIRROR
Suites: $*
Components: $COMPONENTS
Signed-By: $KEYRING
Targets: Packages
SOURCES
	apt-get update >"$WORK/update.log" 2>&1
}

# Newest version of a package within a version prefix, as apt names it.
version_of() {
	apt-cache madison "$1" | awk -F'|' -v want="$2" \
		'{gsub(/ /, "", $2); v = $2; sub(/^[0-9]+:/, "", v); if (index(v, want) == 1) {print $2; exit}}'
}

# Upstream version out of a package version: no epoch, no revision, no repack suffix.
upstream() {
	echo "$1" | sed -e 's/^[0-9]*://' -e 's/[-+~].*$//'
}

fetch_package() {
	(cd "$WORK/debs" && apt-get download "$1=$2" >"$WORK/download.log" 2>&1) ||
		unavailable "download of $1 $2 failed: $(tail -n 1 "$WORK/download.log")"
	rm -rf "$WORK/root/$1" && mkdir -p "$WORK/root/$1"
	dpkg -x "$WORK/debs/$1"_*.deb "$WORK/root/$1"
}

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
	version="$(apt-cache madison "$package" | grep -F " $OWN/" | awk -F'|' 'NR == 1 {gsub(/ /, "", $2); print $2}')"
	[ -n "$version" ] || unavailable "no $package in $OWN"
	fetch_package "$package" "$version"
	place "$package" "${package%-static}" "$(upstream "$version")" "${package%-static}"
done
report
