"""Adapters that read the node: sysfs topology, cgroupfs, CDI directories, kubelet's files.

Every reader takes the root path as a parameter, so that a captured tree and a live node are
read by the same code. Readers give `model` values or raise HostError; none of them writes.
"""
