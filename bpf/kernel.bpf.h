/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The part of the kernel that the objects use, declared by hand.
 *
 * Members are found by name in the running kernel's BTF (CO-RE), so neither a vmlinux.h nor
 * libbpf's headers are needed to build. Helper numbers are UAPI (linux/bpf.h); kfuncs are weak:
 * test for one before calling it where a supported kernel may lack it.
 */
#ifndef CLAIM2CORE_KERNEL_BPF_H
#define CLAIM2CORE_KERNEL_BPF_H

typedef unsigned char __u8;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;
#define true	1
#define false	0
#define NULL	((void *)0)

#define SEC(name)	__attribute__((section(name), used))
#define __always_inline	inline __attribute__((always_inline))
#define __ksym		__attribute__((section(".ksyms")))
#define __weak		__attribute__((weak))
#define __uint(name, val)	int (*name)[val]
#define __type(name, val)	typeof(val) *name

#define ENOENT	2
#define E2BIG	7
#define ENOMEM	12

/* enum bpf_map_type, and flags: UAPI. */
#define BPF_MAP_TYPE_HASH		1
#define BPF_MAP_TYPE_ARRAY		2
#define BPF_MAP_TYPE_PERCPU_ARRAY	6
#define BPF_F_NO_PREALLOC		(1U << 0)
#define BPF_F_MMAPABLE			(1U << 10)
#define BPF_ANY				0

#define PF_EXITING			0x4	/* include/linux/sched.h */
#define CGROUP_MAX_DEPTH		16	/* deeper ones are not looked at */

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_probe_read_kernel)(void *dst, __u32 size, const void *src) = (void *)113;
static __u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static long (*const bpf_seq_write)(void *seq, const void *data, __u32 len) = (void *)127;
static long (*const bpf_loop)(__u32 nr_loops, void *callback, void *ctx, __u64 flags) =
	(void *)181;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;	/* in the default hierarchy */
};

struct pid {
	__u64 ino;			/* st_ino of its pidfds */
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	__u64 start_boottime;
	struct pid *thread_pid;
	struct css_set *cgroups;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

struct bpf_iter_css_task {
	__u64 opaque;
};

/* 6.2 */
void bpf_rcu_read_lock(void) __ksym __weak;
void bpf_rcu_read_unlock(void) __ksym __weak;
struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *p) __ksym __weak;
struct cgroup *bpf_cgroup_from_id(__u64 id) __ksym __weak;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym __weak;
/* 6.7 */
int bpf_iter_css_task_new(struct bpf_iter_css_task *it, struct cgroup_subsys_state *css,
			  unsigned int flags) __ksym __weak;
struct task_struct *bpf_iter_css_task_next(struct bpf_iter_css_task *it) __ksym __weak;
void bpf_iter_css_task_destroy(struct bpf_iter_css_task *it) __ksym __weak;

/* Copy a member whose address CO-RE knows; 0 if the memory is gone. */
#define READ_KERNEL(src)							\
	({									\
		typeof(src) c2c_value_ = 0;					\
		bpf_probe_read_kernel(&c2c_value_, sizeof(c2c_value_),		\
				      __builtin_preserve_access_index(&(src)));	\
		c2c_value_;							\
	})

#endif /* CLAIM2CORE_KERNEL_BPF_H */
