#!/bin/sh
# Make the virtual machine of the tests: a distribution kernel with sched_ext and a root file
# system with that distribution's containerd, runc, crun and Python, for qemu without KVM.
#
# CLAIM2CORE_VM_SUITE (forky) names the root's release, CLAIM2CORE_VM_KERNEL_SUITE (the same)
# the kernel's, so that one root runs on several kernels. Result, below $C2C_CACHE/vm/:
#   <suite>/rootfs                            the packages, unpacked
#   <suite>/<kernel suite>/vmlinux            uncompressed: boots by PVH, no boot loader
#   <suite>/<kernel suite>/root.img           ext4 in one partition: rootfs, modules, /opt/claim2core
#   <suite>/<kernel suite>/release            what uname -r will say
# Each part is made again when what it is made of changes.
. "$(dirname "$0")/common.sh"

REPO="$(cd "$(dirname "$0")/../.." && pwd)"
SUITE="${CLAIM2CORE_VM_SUITE:-forky}"
KERNEL_SUITE="${CLAIM2CORE_VM_KERNEL_SUITE:-$SUITE}"
BASE="$C2C_CACHE/vm/$SUITE"
TARGET="$BASE/$KERNEL_SUITE"
ROOTFS="$BASE/rootfs"
PYTHON="$REPO/.venv/bin/python"
PACKAGES="containerd,runc,crun,python3,libbpf1,bpftool,iproute2,kmod,procps,mount,busybox-static"
PACKAGES="$PACKAGES,systemd,dbus-daemon,dbus-system-bus-common"

[ "$(id -u)" = 0 ] || unavailable "making a root file system needs root"
[ "$(uname -m)" = x86_64 ] || unavailable "kernel and machine are described for x86-64 only"
[ -x "$PYTHON" ] || unavailable "no $PYTHON: run make setup-python"
need flock sha256sum mke2fs
lock_cache

if ! command -v qemu-system-x86_64 >/dev/null || ! command -v mmdebstrap >/dev/null; then
	need apt-get
	LOG="$C2C_CACHE/vm-packages.log"
	{ apt-get -qq update && apt-get -qq install -y --no-install-recommends qemu-system-x86 mmdebstrap; } \
		</dev/null >"$LOG" 2>&1 || unavailable "no qemu or mmdebstrap: $(tail -n 1 "$LOG")"
fi

make_rootfs() {
	[ "$(cat "$BASE/rootfs.stamp" 2>/dev/null)" = "$PACKAGES" ] && return
	. "$(dirname "$0")/apt.sh"
	[ "$ORIGIN" = Debian ] || unavailable "$ORIGIN has no suite $SUITE"
	rm -rf "$BASE" && mkdir -p "$BASE"
	echo "deb [signed-by=$KEYRING] $MIRROR $SUITE main" >"$WORK/sources.list"
	mmdebstrap --mode=root --variant=minbase --include="$PACKAGES" \
		--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "3"' \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		"$SUITE" "$ROOTFS" "$WORK/sources.list" </dev/null >"$BASE/rootfs.log" 2>&1 ||
		unavailable "mmdebstrap failed, see $BASE/rootfs.log: $(tail -n 1 "$BASE/rootfs.log")"
	echo "$PACKAGES" >"$BASE/rootfs.stamp"
}

# The kernel that the suite's cloud image package depends on.
make_kernel() {
	[ -e "$TARGET/vmlinux" ] && [ -e "$TARGET/release" ] && return
	[ -n "${WORK:-}" ] || . "$(dirname "$0")/apt.sh"
	use_suites "$KERNEL_SUITE" || unavailable "no suite $KERNEL_SUITE: $(tail -n 1 "$WORK/update.log")"
	RELEASE="$(private apt-cache depends linux-image-cloud-amd64 |
		sed -n 's/^ *Depends: linux-image-\(.*\)$/\1/p' | head -n 1)"
	[ -n "$RELEASE" ] || unavailable "$KERNEL_SUITE has no cloud kernel"
	rm -rf "$TARGET" && mkdir -p "$TARGET"
	for package in "linux-binary-$RELEASE" "linux-modules-$RELEASE"; do
		version="$(version_of "$package")"
		[ -n "$version" ] || unavailable "$KERNEL_SUITE has no $package"
		fetch_package "$package" "$version"
	done
	mv "$WORK/root/linux-modules-$RELEASE/usr/lib/modules/$RELEASE" "$TARGET/modules"
	cp "$WORK/root/linux-binary-$RELEASE/usr/lib/modules/$RELEASE/vmlinuz" "$ROOTFS/tmp/vmlinuz"
	cp "$REPO/e2e/vm/extract_vmlinux.py" "$ROOTFS/tmp/"
	# The guest's Python has every decompressor that kernels use.
	chroot "$ROOTFS" python3 /tmp/extract_vmlinux.py /tmp/vmlinuz /tmp/vmlinux ||
		unavailable "no kernel in $RELEASE's vmlinuz"
	mv "$ROOTFS/tmp/vmlinux" "$TARGET/vmlinux"
	rm -f "$ROOTFS"/tmp/*
	echo "$RELEASE" >"$TARGET/release"
}

# What root.img is made of, beyond rootfs and kernel.
image_stamp() {
	"$PYTHON" "$REPO/e2e/vm/requirements.py"
	(cd "$C2C_CACHE" && find containerd -type f -printf '%p %s %T@\n' 2>/dev/null | sort)
	cat "$BASE/rootfs.stamp" "$TARGET/release"
	cat "$0" "$REPO/e2e/vm/boot.sh" "$REPO/e2e/workload/firstmask.c" | sha256sum
}

make_image() {
	STAMP="$(image_stamp)" || unavailable "the requirements cannot be read"
	[ -e "$TARGET/root.img" ] && [ "$STAMP" = "$(cat "$TARGET/image.stamp" 2>/dev/null)" ] && return
	RELEASE="$(cat "$TARGET/release")"
	GUEST="$ROOTFS/opt/claim2core"
	VERSION="$(chroot "$ROOTFS" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
	rm -rf "$GUEST" "$ROOTFS/usr/lib/modules" "$TARGET/image.log"
	mkdir -p "$GUEST/cache/containerd" "$ROOTFS/usr/lib/modules"
	"$PYTHON" "$REPO/e2e/vm/requirements.py" >"$TARGET/requirements.txt"
	"$PYTHON" -m pip install --quiet --disable-pip-version-check --target "$GUEST/python" \
		--python-version "$VERSION" --implementation cp --only-binary=:all: \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
		--requirement "$TARGET/requirements.txt" >"$TARGET/image.log" 2>&1 ||
		unavailable "pip has no wheels for Python $VERSION: $(tail -n 1 "$TARGET/image.log")"
	# Emulated, compiling costs more than the whole boot.
	chroot "$ROOTFS" python3 -m compileall -q -j 0 /opt/claim2core/python >"$TARGET/image.log" 2>&1 || :
	site="$ROOTFS/usr/local/lib/python$VERSION/dist-packages"
	mkdir -p "$site"
	printf '%s\n' /opt/claim2core/wheel /opt/claim2core/python >"$site/claim2core.pth"
	# The distribution's own containerd is on the guest's PATH; those built from the module follow.
	own="$(chroot "$ROOTFS" containerd --version | sed -n 's/.* v\{0,1\}\([0-9]*\.[0-9]*\)\.[0-9].*/\1/p')"
	for found in "$C2C_CACHE"/containerd/*; do
		case "${found##*/}" in "$own".* | "*") ;; *) cp -a "$found" "$GUEST/cache/containerd/" ;; esac
	done
	cp "$REPO/e2e/vm/boot.sh" "$ROOTFS/sbin/claim2core-boot"
	chmod 755 "$ROOTFS/sbin/claim2core-boot"
	cp -a "$TARGET/modules" "$ROOTFS/usr/lib/modules/$RELEASE"
	chroot "$ROOTFS" depmod "$RELEASE" >>"$TARGET/image.log" 2>&1
	staging="$TARGET/.root.img"
	rm -f "$staging" && truncate -s 2G "$staging"
	mke2fs -q -F -t ext4 -m 0 -i 32768 -O ^has_journal -E offset=1048576,lazy_itable_init=0 \
		-d "$ROOTFS" "$staging" 2047M >>"$TARGET/image.log" 2>&1 ||
		unavailable "mke2fs failed: $(tail -n 1 "$TARGET/image.log")"
	# A partition table by hand: signature 31633263, one Linux partition from sector 2048 on.
	# NVMe names change from boot to boot, PARTUUID=31633263-01 does not.
	printf 'c2c1' | dd of="$staging" bs=1 seek=440 conv=notrunc status=none
	printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\370\077\000' |
		dd of="$staging" bs=1 seek=446 conv=notrunc status=none
	printf '\125\252' | dd of="$staging" bs=1 seek=510 conv=notrunc status=none
	mv "$staging" "$TARGET/root.img"
	echo "$STAMP" >"$TARGET/image.stamp"
}

make_rootfs
make_kernel
make_image
echo "vm: Linux $(cat "$TARGET/release"), root of $SUITE ($(du -h "$TARGET/root.img" | cut -f1)) in $TARGET"
