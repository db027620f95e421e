"""The virtual-machine tier: tests inside a distribution's kernel with sched_ext and cgroup v2.

`e2e/setup/vm.sh` makes kernel and root file system; `machine` boots them under qemu's software
emulation and runs one command; `payload` packs what the command needs; `tier` says which tests
belong here; `python -m e2e.vm -- ARGS` runs any of them. Inside, `boot.sh` (in the image),
`init.sh` and `session.sh` (brought in) lead from the kernel to the command, and `keep_logs`
brings out the logs of tests that fail. Emulated time means nothing: counts, sets and order do.
"""
