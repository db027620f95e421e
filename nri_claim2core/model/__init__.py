"""Values that every other package shares: sets of CPUs, identifiers, claims, envelopes, errors.

Here belong immutable values and the rules that are true of the value alone. Never here:
sockets, files, clocks, logging, protobuf, YAML - nothing in this package can block or fail
for a reason outside its arguments.

Start with `cpuset` (what a CPU list is), then `records` (a container as we remember it),
`evidence` (what was seen about a claim), `claim` (what we conclude) and `envelope` (what
follows for the container).
"""
