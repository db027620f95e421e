"""The virtual-machine tier: tests inside a distribution's kernel with sched_ext and cgroup v2.

`e2e/setup/vm.sh` makes kernel and root file system; `machine` boots them under qemu's software
emulation and runs one command; `payload` packs what the command needs; `python -m e2e.vm -- ARGS`
runs pytest inside. Emulated time means nothing: counts, sets and order do.
"""
