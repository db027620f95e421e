"""Worlds to run the plugin in: scripted scenarios, and a private containerd with real pods.

`simulate` and `demo` are made of this, and so are the tests and benchmarks. What is written
here (CDI specs, checkpoints) stands for drivers and kubelet and shares no code with the
readers in `host`.
"""
