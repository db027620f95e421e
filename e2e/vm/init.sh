# Second stage of the guest's first process, brought in with each run: a node's file systems
# and cgroup v2 tree, then systemd with nothing but a message bus and the unit that runs
# /c2c/in/session.sh. The whole set of a distribution's units would take half a minute.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/lock /run/systemd/system /run/systemd/system-generators
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -sfn /proc/self/fd /dev/fd
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
ln -sfn /c2c/in/wheel /opt/claim2core/wheel
modprobe overlay
ip link set lo up
stty -F /dev/hvc0 raw
for generator in /usr/lib/systemd/system-generators/*; do
	ln -s /dev/null "/run/systemd/system-generators/${generator##*/}"
done
cd /run/systemd/system
cat >dbus.socket <<UNIT
[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
UNIT
cat >dbus.service <<UNIT
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile
UNIT
# Delegate: the controllers stay enabled at the root, where beds of the cgroupfs driver are.
cat >claim2core.service <<UNIT
[Unit]
DefaultDependencies=no
Wants=dbus.service
After=dbus.service
[Service]
Type=oneshot
Delegate=yes
TasksMax=infinity
Environment=OUT_DISK=$OUT_DISK PATH=$PATH HOME=/root LANG=C.UTF-8
ExecStart=/bin/sh /c2c/in/session.sh
UNIT
cd /
exec /usr/lib/systemd/systemd --unit=claim2core.service
