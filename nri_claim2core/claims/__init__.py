"""From environment, CDI names and evidence to linked claims, verdicts and the envelope.

Pure: values of `model` in, values of `model` out. Nothing here reads a file, a clock or a
message; `agent` collects the evidence and carries out what follows.
"""
