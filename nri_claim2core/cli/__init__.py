"""Argument parsing and rendering, one module per command, everything imported lazily."""
