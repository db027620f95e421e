"""`resource.k8s.io/v1` semantics: ResourceSlice inventory, allocation, node selection, bindings.

Pure. Inventory (what a slice offers) and allocation (what a claim's status grants) are
different types in different modules; only the join that makes a ClaimDeviceBinding takes both.
"""
