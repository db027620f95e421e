"""List/watch adapter on the official Kubernetes client; the only package that imports it."""
