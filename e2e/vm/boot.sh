#!/bin/sh
# First process of the guest, part of its image: unpack the disk "c2c-in" and hand over to the
# init that it brings, so that only this little is fixed when the image is made.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
disk() { # disk SERIAL: its device, once the kernel has found it
	while :; do
		for found in /sys/block/nvme*; do
			read -r serial <"$found/device/serial" && [ "$serial" = "$1" ] && echo "/dev/${found##*/}" && return
		done
		sleep 0.1
	done 2>/dev/null
}
mkdir -p /c2c/in /c2c/out
tar -xf "$(disk c2c-in)" -C /c2c/in
OUT_DISK="$(disk c2c-out)"
. /c2c/in/init.sh
