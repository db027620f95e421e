"""The Node Resource Interface for Python: both ends of the wire, reusable on their own.

Placeholder docstring.
"""
