# Run in the guest by systemd: /c2c/in/command, then its exit code, the kernel's log and whatever
# it left in /c2c/out go out on the disk "c2c-out". The console tells the host that we are up.
echo claim2core-guest-up >/dev/hvc0
cd /c2c/in
sh /c2c/in/command </dev/null >/dev/hvc0 2>&1
echo $? >/c2c/out/exit-code
dmesg >/c2c/out/dmesg
tar -cf "$OUT_DISK" -C /c2c/out . && sync
echo o >/proc/sysrq-trigger
while :; do sleep 60; done
