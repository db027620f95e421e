/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler remembers of threads and CPUs, and what it counts.
 *
 * Private to the scheduler object: nothing here is pinned but runs and exit record.
 */
#ifndef CLAIM2CORE_STATE_BPF_H
#define CLAIM2CORE_STATE_BPF_H

#define MAX_CELLS	512	/* entries of c2c_cells */
#define CELLS_OF_CPU	8	/* cells that one CPU serves; more: counted, served in turn */
#define RESCUE_NS	1000000000ULL
#define MS		1000000ULL

/* By enum c2c_class. */
static const __u64 class_offset_ns[C2C_MAX_CLASSES] = {
	[C2C_CLASS_DEFAULT] = 20 * MS,
	[C2C_CLASS_COMMUNICATION_PROGRESS] = 5 * MS,
	[C2C_CLASS_THROUGHPUT] = 40 * MS,
	[C2C_CLASS_BACKGROUND] = 80 * MS,
};

static const __u64 class_slice_ns[C2C_MAX_CLASSES] = {
	[C2C_CLASS_DEFAULT] = 5 * MS,
	[C2C_CLASS_LATENCY_CRITICAL] = 5 * MS,
	[C2C_CLASS_COMMUNICATION_PROGRESS] = 5 * MS,
	[C2C_CLASS_THROUGHPUT] = 10 * MS,
	[C2C_CLASS_BACKGROUND] = 5 * MS,
};

/* The scheduler's own counters, from C2C_COUNTER_SCHEDULER on. */
enum {
	COUNT_WITH_POLICY	= C2C_COUNTER_SCHEDULER,	/* runs of a workload after exec */
	COUNT_WITHOUT_POLICY,
	COUNT_LATE_CGROUPS,	/* cgroups whose workload ran before they had a policy */
	COUNT_PER_CPU,		/* enqueued for one CPU: the mask does not cover the cell */
	COUNT_RESCUES,		/* enqueued in a cell that was retired meanwhile */
	COUNT_NO_CONTEXT,	/* tasks without storage: default class, not counted */
	COUNT_CELLS_LEFT_OUT,	/* a CPU has more cells than it serves at a time */
	COUNT_ROWS_ENDED,	/* rows deleted as their thread or cgroup ended */
};

/* What is remembered of a thread between two events. */
struct task_context {
	/* Cached look-up, and what it depends on. */
	__u64 generation;
	__u64 floor;
	__u64 cgroup_id;
	__u64 lease_end_ns;
	__u64 cell_generation;
	__u64 slice_ns;
	__u32 tid;
	__u32 flags;
	__u32 cell;
	__u32 weight;
	__u32 exec_class;
	__u32 source;
	/* Whether it is the workload: exec was called for it in the cgroup it is in. */
	__u64 home_cgroup_id;
	__u32 exec_id;
	__u32 is_workload;

	__u64 runnable_ns;
	__u64 running_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_context);
} c2c_contexts SEC(".maps");

/* Runs of workloads by cgroup, kept after the cgroup is gone; the oldest make room. */
struct runs {
	__u64 with_policy;
	__u64 without_policy;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct runs);
} c2c_runs SEC(".maps");

/* Why the scheduler ended; kept for whoever asks afterwards. */
struct exit_record {
	__s64 code;
	__u32 kind;
	__u32 reserved;
	char reason[128];
	char message[1024];
	char dump[32768];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exit_record);
} c2c_exit SEC(".maps");

/* The cells that a CPU serves, as of a generation. Written by that CPU alone. */
struct cpu_context {
	__u64 generation;
	__u64 rescue;
	__u32 nr_cells;
	__u32 turn;
	__u32 cells[CELLS_OF_CPU];
	__u32 is_claimed;
	__u32 nr_left_out;
	/* Scratch of the program that runs here; none is interrupted by another. */
	__u64 claimed[C2C_MASK_WORDS];
	__u64 allowed[C2C_MASK_WORDS];
	__u64 serving[C2C_MASK_WORDS];
	struct c2c_view view;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, C2C_MAX_CPUS);
	__type(key, __u32);
	__type(value, struct cpu_context);
} c2c_cpus SEC(".maps");

/* CPUs of live cells; whoever looks at the cells anew writes it whole. */
static __u64 claimed_mask[C2C_MASK_WORDS];
static __u64 online_mask[C2C_MASK_WORDS];
static __u64 rescues;
static __u64 rescue_until_ns;
static __u32 nr_cpus;
static __u32 nr_words;

static __always_inline struct cpu_context *cpu_context_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&c2c_cpus, &cpu);
}

static __always_inline struct task_context *task_context_of(struct task_struct *p)
{
	return bpf_task_storage_get(&c2c_contexts, p, NULL, 0);
}

static __always_inline bool mask_has(const __u64 *mask, __u32 cpu)
{
	return mask[(cpu / 64) % C2C_MASK_WORDS] & (1ULL << (cpu % 64));
}

static __always_inline void add_to_hist(__u64 *hist, __u64 ns)
{
	__u64 us = ns / 1000;
	__u32 slot = 0;

#pragma clang loop unroll(full)
	for (int shift = 16; shift; shift /= 2) {
		if (us >> shift) {
			us >>= shift;
			slot += shift;
		}
	}
	hist[slot % C2C_HIST_SLOTS]++;
}

#endif /* CLAIM2CORE_STATE_BPF_H */
