"""The long-running roles: wiring, deadlines, metrics, state.

The only place where the pure packages, the adapters and the NRI endpoint meet. Start with
`plugin`, the role that stands in the start path of every container.
"""
