"""Adapter to the kernel's BPF maps: ABI, bpf(2), loading, read-back. Knows no claims.

Start with loader.load, which adopts or makes the pinned set, then mutate.Writer with the
requests of requests.py, and readback. abi.py mirrors bpf/claim2core.h; rows.py, requests.py
and layout.py are pure.
"""
