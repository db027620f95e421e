"""From environment, CDI names and evidence to linked claims, verdicts and the envelope.

Pure: values of `model` in, values of `model` out. Nothing here reads a file, a clock or a
message; `agent` collects the evidence and carries out what follows. The chain, each step a
module: `environment` and `cdi_names` read texts, `extractors_table` knows drivers' naming,
`specs` and `sources` ask each source about one claim, `verdicts` is the decision table, `link`
puts them together for a container, `effects` says what is granted or refused, `ownership` and
`envelope` what follows for its cpuset, `predicates` whether the kernel agrees.

Start with `link.link`, then `verdicts`.
"""
