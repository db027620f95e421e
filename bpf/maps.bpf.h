/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps that plugin and scheduler share, by their pins.
 *
 * The plugin creates them, freezes them for user space - then only programs write - and pins
 * them. The scheduler reuses the pins. Sizes are those of a large node; the loader may set
 * others, and whoever adopts a pin takes the size as it is.
 */
#ifndef CLAIM2CORE_MAPS_BPF_H
#define CLAIM2CORE_MAPS_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct c2c_control);
} c2c_control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, struct c2c_cell);
} c2c_cells SEC(".maps");

/* Rows come one by one and most nodes have few: memory by use. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct c2c_cgroup);
} c2c_cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct c2c_task);
} c2c_tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct c2c_stats);
} c2c_stats SEC(".maps");

#endif /* CLAIM2CORE_MAPS_BPF_H */
