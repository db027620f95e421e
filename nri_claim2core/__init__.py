"""Claim2Core on the node: DRA claims made to hold, from a workload's first instruction.

Start with `model` (the words everything is said in), then `agent/plugin.py` (how the
parts meet). Packages and the direction of imports are listed in the top README.
"""

__version__ = "0.1.0"
