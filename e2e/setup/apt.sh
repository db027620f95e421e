# Packages of this distribution's other releases, without installing; sourced after common.sh.
#
# The release that this machine runs may carry too old a version, so newer suites are asked
# through a private apt configuration: own lists, own status, no root needed. The mirror is
# the one that the machine's apt already uses. Sets WORK (removed on exit), OWN (this
# machine's suite), NEWER, ORIGIN, COMPONENTS, KEYRING and MIRROR.

need apt-get apt-cache dpkg flock

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

# apt with the private configuration; the machine's own stays reachable as plain apt-get.
private() {
	APT_CONFIG="$WORK/apt.conf" "$@"
}

use_suites() {
	cat >"$WORK/bed.sources" <<SOURCES
Types: deb
URIs: $MIRROR
Suites: $*
Components: $COMPONENTS
Signed-By: $KEYRING
Targets: Packages
SOURCES
	private apt-get update >"$WORK/update.log" 2>&1
}

# Newest version of a package within a version prefix, as apt names it.
version_of() {
	private apt-cache madison "$1" | awk -F'|' -v want="${2:-}" \
		'{gsub(/ /, "", $2); v = $2; sub(/^[0-9]+:/, "", v); if (index(v, want) == 1) {print $2; exit}}'
}

# Upstream version out of a package version: no epoch, no revision, no repack suffix.
upstream() {
	echo "$1" | sed -e 's/^[0-9]*://' -e 's/[-+~].*$//'
}

# Unpack a package into $WORK/root/<package>.
fetch_package() {
	(cd "$WORK/debs" && private apt-get download "$1=$2" >"$WORK/download.log" 2>&1) ||
		unavailable "download of $1 $2 failed: $(tail -n 1 "$WORK/download.log")"
	rm -rf "$WORK/root/$1" && mkdir -p "$WORK/root/$1"
	dpkg -x "$WORK/debs/$1"_*.deb "$WORK/root/$1"
}
