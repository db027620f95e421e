"""Adapter to the kernel's BPF maps: ABI, bpf(2), loading, read-back. Knows no claims."""
