"""DRAExecutionPolicy to scheduling decisions: a pure compiler, same input, same output.

Nothing here may widen an envelope, reach another tenant's cell or call Kubernetes.
"""
