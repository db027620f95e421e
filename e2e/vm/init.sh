# Second stage of the guest's first process, brought in with each run: a node's file systems
# and cgroup v2 tree, then /c2c/in/command; its exit code, the kernel's log and whatever it
# left in /c2c/out go out on the disk "c2c-out". The console tells the host that we are up.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -sfn /proc/self/fd /dev/fd
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+cpuset +cpu +io +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
mount -t bpf bpf /sys/fs/bpf
ln -sfn /c2c/in/wheel /opt/claim2core/wheel
modprobe overlay
ip link set lo up
stty -F /dev/hvc0 raw
echo claim2core-guest-up >/dev/hvc0
cd /c2c/in
sh /c2c/in/command </dev/null >/dev/hvc0 2>&1
echo $? >/c2c/out/exit-code
dmesg >/c2c/out/dmesg
tar -cf "$OUT_DISK" -C /c2c/out . && sync
echo o >/proc/sysrq-trigger
while :; do sleep 60; done
