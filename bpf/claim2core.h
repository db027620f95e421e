/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one ABI between plugin, scheduler and tools: layout of the pinned maps and of a mutation.
 *
 * Compiled into both BPF objects and, unchanged, by C in user space; nri_claim2core/bpfmap/abi.py
 * is its mirror and is compared with the BTF of the compiled objects. A change of any size,
 * offset or meaning is another C2C_ABI.
 *
 * Rows are valid within one boot only. Times are CLOCK_BOOTTIME in ns. Every row ends in a seal
 * over the words before it: hash elements are recycled under readers, so a copy that mixes two
 * rows has to be seen as none.
 */
#ifndef CLAIM2CORE_H
#define CLAIM2CORE_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define C2C_ABI			1

#define C2C_MAX_CPUS		1024	/* CPUs that a mask can name */
#define C2C_MASK_WORDS		(C2C_MAX_CPUS / 64)
#define C2C_MAX_REQUESTS	512	/* requests of one mutation */
#define C2C_MAX_CLASSES		8	/* room in the statistics for enum c2c_class */
#define C2C_NR_COUNTERS		128
#define C2C_MAX_WEIGHT		10000
#define C2C_HIST_SLOTS		32	/* slot n: 2^n us <= time < 2^(n+1) us; slot 0 from 0 */
#define C2C_BUSY_LIMIT_NS	1000000000ULL	/* a mutation that takes longer has died */

/* Queue of cell n in the scheduler: below are its per-CPU queues. */
#define C2C_DSQ_CELL_BASE	0x10000ULL

/* Execution class; an all-zero policy is the default one. */
enum c2c_class {
	C2C_CLASS_DEFAULT			= 0,
	C2C_CLASS_LATENCY_CRITICAL		= 1,
	C2C_CLASS_COMMUNICATION_PROGRESS	= 2,
	C2C_CLASS_THROUGHPUT			= 3,
	C2C_CLASS_BACKGROUND			= 4,
};

/* Life of a cell. Its mask changes only while it is free. */
enum c2c_cell_state {
	C2C_CELL_FREE		= 0,
	C2C_CELL_LIVE		= 1,
	C2C_CELL_DRAINING	= 2,	/* takes no more rows; its queue may hold tasks */
	C2C_CELL_DRAINED	= 3,	/* the scheduler saw its queue empty for good */
};

/* Bits of c2c_control.flags. */
#define C2C_CONTROL_SUSPENDED	(1U << 0)	/* emergency stop: readers use no row */

/* What a reader makes of a row; counted at C2C_COUNTER_VERDICT + value. */
enum c2c_verdict {
	C2C_VERDICT_OK			= 0,
	C2C_VERDICT_MISS		= 1,	/* no row */
	C2C_VERDICT_SUSPENDED		= 2,
	C2C_VERDICT_TORN		= 3,	/* seal or key do not fit: recycled, or not ours */
	C2C_VERDICT_OLD_GENERATION	= 4,	/* below the floor */
	C2C_VERDICT_OTHER_TASK		= 5,	/* the TID belongs to another thread now */
	C2C_VERDICT_OTHER_CGROUP	= 6,	/* the thread has left the row's cgroup */
	C2C_VERDICT_CELL_STALE		= 7,	/* the cell was freed or reused */
	C2C_VERDICT_LEASE_OVER		= 8,
};

/* What governs a thread. */
enum c2c_source {
	C2C_SOURCE_NONE		= 0,	/* default class, cell 0 */
	C2C_SOURCE_CGROUP	= 1,
	C2C_SOURCE_TASK		= 2,
};

/* What a mutation does, and what one of its requests does. */
enum c2c_op {
	C2C_OP_TAKE_TOKEN	= 1,	/* become the one writer */
	C2C_OP_RAISE_FLOOR	= 2,	/* rows with a generation below @value are void */
	C2C_OP_SET_FLAGS	= 3,	/* c2c_control.flags = @value */
	C2C_OP_ROWS		= 4,	/* the requests in c2c_requests */
};

enum c2c_request_op {
	C2C_REQUEST_PUT_CELL		= 1,
	C2C_REQUEST_DRAIN_CELL		= 2,
	C2C_REQUEST_FREE_CELL		= 3,
	C2C_REQUEST_PUT_CGROUP		= 4,
	C2C_REQUEST_DELETE_CGROUP	= 5,
	C2C_REQUEST_PUT_TASK		= 6,	/* by TID of the initial pid namespace */
	C2C_REQUEST_PUT_TASK_OF_CGROUP	= 7,	/* by pid_ino among the tasks of cgroup_id */
	C2C_REQUEST_DELETE_TASK		= 8,
};

/* Outcome of a mutation or request; counted at C2C_COUNTER_RESULT + value. */
enum c2c_result {
	C2C_RESULT_OK			= 0,
	C2C_RESULT_OTHER_ABI		= 1,
	C2C_RESULT_BUSY			= 2,	/* another mutation runs: try again */
	C2C_RESULT_STALE_WRITER		= 3,	/* somebody took the token since */
	C2C_RESULT_BAD_REQUEST		= 4,
	C2C_RESULT_FLOOR_LOWER		= 5,
	C2C_RESULT_FULL			= 6,
	C2C_RESULT_NO_MEMORY		= 7,
	C2C_RESULT_NOT_FOUND		= 8,	/* no such row */
	C2C_RESULT_TASK_GONE		= 9,
	C2C_RESULT_OTHER_TASK		= 10,	/* the TID is another thread's */
	C2C_RESULT_OTHER_CGROUP		= 11,	/* the thread is in another cgroup */
	C2C_RESULT_NO_CGROUP		= 12,
	C2C_RESULT_CELL_TAKEN		= 13,	/* live with another mask, or not yet free */
	C2C_RESULT_CELL_STALE		= 14,	/* not live, or of another generation */
	C2C_RESULT_CELL_BUSY		= 15,	/* the scheduler has not drained it */
	C2C_RESULT_OTHER_GENERATION	= 16,	/* the row to delete was written again */
	C2C_RESULT_KERNEL		= 17,	/* c2c_request.error has the errno */
};

/* Base indices into c2c_stats.counters. */
enum c2c_counter {
	C2C_COUNTER_RESULT	= 0,	/* 32: by enum c2c_result, mutation program */
	C2C_COUNTER_VERDICT	= 32,	/* 16: by enum c2c_verdict, scheduler's look-ups */
	C2C_COUNTER_CLASS	= 48,	/* 8: runs by enum c2c_class, scheduler */
	C2C_COUNTER_SCHEDULER	= 56,	/* the rest: the scheduler's own */
};

/* c2c_control[0]. Written by the mutation program; @scheduler_ns by the scheduler. */
struct c2c_control {
	__u64 generation;	/* last one stamped; never decreases */
	__u64 floor;		/* rows below are void; never decreases */
	__u64 token;		/* the writer's: the generation at which it took over */
	__u64 busy_ns;		/* start of the mutation that runs now, or 0 */
	__u64 taken_ns;		/* when the token was taken */
	__u64 scheduler_ns;	/* when the scheduler that uses these maps came, or 0 */
	__u32 abi;
	__u32 flags;
	__u32 writer_tgid;	/* initial pid namespace */
	__u32 reserved;
};

/* c2c_cells[n]: a distinct envelope. Cell 0 is everybody else. */
struct c2c_cell {
	__u64 generation;
	__u64 dsq_id;
	__u64 mask[C2C_MASK_WORDS];
	__u64 seal;		/* over what is before: the state moves on its own */
	__u32 state;		/* enum c2c_cell_state */
	__u32 reserved;
};

/* What is decided for a cgroup or a thread. */
struct c2c_policy {
	__u64 generation;	/* stamped by the mutation program */
	__u64 cell_generation;
	__u64 claim_key;	/* digest of the linked claims; opaque here */
	__u64 lease_end_ns;	/* end of the class, or 0: needs no lease */
	__u64 slice_ns;		/* 0: the class's */
	__u32 cell;
	__u32 weight;		/* as cpu.weight: 1..C2C_MAX_WEIGHT, 0 = 100 */
	__u32 exec_class;	/* enum c2c_class */
	__u32 flags;
};

/* c2c_cgroups[cgroup id in the default hierarchy]: governs all that runs below. */
struct c2c_cgroup {
	struct c2c_policy policy;
	__u64 cgroup_id;
	__u64 seal;
};

/* c2c_tasks[TID in the initial pid namespace]: governs that thread alone, if all fits. */
struct c2c_task {
	struct c2c_policy policy;
	__u64 cgroup_id;
	__u64 start_boottime_ns;
	__u64 pid_ino;		/* inode number of the thread's pidfd */
	__u32 tid;
	__u32 tgid;
	__u64 seal;
};

/* c2c_stats[0], per CPU. */
struct c2c_stats {
	__u64 counters[C2C_NR_COUNTERS];
	__u64 wait_hist[C2C_MAX_CLASSES][C2C_HIST_SLOTS];	/* runnable to running */
	__u64 run_hist[C2C_MAX_CLASSES][C2C_HIST_SLOTS];	/* running to stopping */
};

/* c2c_requests[n]: private to one writer, never pinned; results come back in place. */
struct c2c_request {
	union {
		struct c2c_cell cell;
		struct c2c_cgroup cgroup;
		struct c2c_task task;
	};
	__u64 generation;	/* out: stamped. in, to delete: only this one, 0 = any */
	__u32 op;		/* enum c2c_request_op */
	__u32 index;		/* cell index, for cells */
	__u32 result;		/* out: enum c2c_result */
	__s32 error;		/* out: errno of C2C_RESULT_KERNEL, negative */
};

/* Argument of the mutation program. */
struct c2c_mutation {
	__u64 token;		/* in; out of C2C_OP_TAKE_TOKEN */
	__u64 value;		/* in */
	__u64 generation;	/* out: the counter afterwards */
	__u32 abi;		/* in */
	__u32 op;		/* in: enum c2c_op */
	__u32 nr_requests;	/* in */
	__u32 nr_failed;	/* out */
	__u32 result;		/* out: enum c2c_result; requests have their own */
	__u32 reserved;
};

/* What the kernel side makes of one thread: argument of c2c_resolve, record of c2c_iterate. */
struct c2c_view {
	struct c2c_policy policy;	/* in force: all zero is the default */
	__u64 cgroup_id;		/* of the thread */
	__u64 governing_cgroup_id;	/* where a row was found, or 0 */
	__u64 start_boottime_ns;
	__u64 pid_ino;
	__u32 tid;			/* in, for c2c_resolve */
	__u32 tgid;
	__u32 source;			/* enum c2c_source */
	__u32 task_verdict;		/* enum c2c_verdict of the TID row */
	__u32 cgroup_verdict;		/* enum c2c_verdict of the nearest cgroup row */
	__u32 result;			/* enum c2c_result of c2c_resolve */
};

#define C2C_AT(type, member, offset)						\
	_Static_assert(__builtin_offsetof(struct type, member) == (offset),	\
		       #type "." #member " moved")
#define C2C_SIZE(type, size)							\
	_Static_assert(sizeof(struct type) == (size), #type " has another size")

C2C_SIZE(c2c_control, 64);
C2C_AT(c2c_control, generation, 0);
C2C_AT(c2c_control, floor, 8);
C2C_AT(c2c_control, token, 16);
C2C_AT(c2c_control, busy_ns, 24);
C2C_AT(c2c_control, taken_ns, 32);
C2C_AT(c2c_control, scheduler_ns, 40);
C2C_AT(c2c_control, abi, 48);
C2C_AT(c2c_control, flags, 52);
C2C_AT(c2c_control, writer_tgid, 56);

C2C_SIZE(c2c_cell, 160);
C2C_AT(c2c_cell, generation, 0);
C2C_AT(c2c_cell, dsq_id, 8);
C2C_AT(c2c_cell, mask, 16);
C2C_AT(c2c_cell, seal, 144);
C2C_AT(c2c_cell, state, 152);

C2C_SIZE(c2c_policy, 56);
C2C_AT(c2c_policy, generation, 0);
C2C_AT(c2c_policy, cell_generation, 8);
C2C_AT(c2c_policy, claim_key, 16);
C2C_AT(c2c_policy, lease_end_ns, 24);
C2C_AT(c2c_policy, slice_ns, 32);
C2C_AT(c2c_policy, cell, 40);
C2C_AT(c2c_policy, weight, 44);
C2C_AT(c2c_policy, exec_class, 48);
C2C_AT(c2c_policy, flags, 52);

C2C_SIZE(c2c_cgroup, 72);
C2C_AT(c2c_cgroup, policy, 0);
C2C_AT(c2c_cgroup, cgroup_id, 56);
C2C_AT(c2c_cgroup, seal, 64);

C2C_SIZE(c2c_task, 96);
C2C_AT(c2c_task, policy, 0);
C2C_AT(c2c_task, cgroup_id, 56);
C2C_AT(c2c_task, start_boottime_ns, 64);
C2C_AT(c2c_task, pid_ino, 72);
C2C_AT(c2c_task, tid, 80);
C2C_AT(c2c_task, tgid, 84);
C2C_AT(c2c_task, seal, 88);

C2C_SIZE(c2c_stats, 5120);
C2C_AT(c2c_stats, counters, 0);
C2C_AT(c2c_stats, wait_hist, 1024);
C2C_AT(c2c_stats, run_hist, 3072);

C2C_SIZE(c2c_request, 184);
C2C_AT(c2c_request, cell, 0);
C2C_AT(c2c_request, cgroup, 0);
C2C_AT(c2c_request, task, 0);
C2C_AT(c2c_request, generation, 160);
C2C_AT(c2c_request, op, 168);
C2C_AT(c2c_request, index, 172);
C2C_AT(c2c_request, result, 176);
C2C_AT(c2c_request, error, 180);

C2C_SIZE(c2c_mutation, 48);
C2C_AT(c2c_mutation, token, 0);
C2C_AT(c2c_mutation, value, 8);
C2C_AT(c2c_mutation, generation, 16);
C2C_AT(c2c_mutation, abi, 24);
C2C_AT(c2c_mutation, op, 28);
C2C_AT(c2c_mutation, nr_requests, 32);
C2C_AT(c2c_mutation, nr_failed, 36);
C2C_AT(c2c_mutation, result, 40);

C2C_SIZE(c2c_view, 112);
C2C_AT(c2c_view, policy, 0);
C2C_AT(c2c_view, cgroup_id, 56);
C2C_AT(c2c_view, governing_cgroup_id, 64);
C2C_AT(c2c_view, start_boottime_ns, 72);
C2C_AT(c2c_view, pid_ino, 80);
C2C_AT(c2c_view, tid, 88);
C2C_AT(c2c_view, tgid, 92);
C2C_AT(c2c_view, source, 96);
C2C_AT(c2c_view, task_verdict, 100);
C2C_AT(c2c_view, cgroup_verdict, 104);
C2C_AT(c2c_view, result, 108);

#endif /* CLAIM2CORE_H */
