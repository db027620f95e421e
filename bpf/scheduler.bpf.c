// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scheduler object: one queue per cell, one per CPU, counters.
 *
 * A thread runs where its cpus_ptr says; the cell only chooses the queue. Tasks whose mask covers
 * their cell's CPUs wait in the cell's queue, ordered by virtual deadline; others in the queue
 * of one CPU they may use. Nothing is ever inserted for a remote CPU's local queue: queues are
 * pulled in dispatch, where the kernel filters by cpus_ptr, so a cpuset that changes meanwhile
 * can not be violated nor eject the scheduler.
 *
 * Wait of the lowest class: its offset is 80 ms, so it is ahead of everything that came 80 ms
 * later; queues of one CPU take turns.
 */
#include "kernel.bpf.h"
#include "claim2core.h"
#include "scx.bpf.h"
#include "maps.bpf.h"
#include "lookup.bpf.h"
#include "state.bpf.h"
#include "cells.bpf.h"
#include "policy.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline __u64 slice_of(const struct task_context *task)
{
	if (!task)
		return class_slice_ns[C2C_CLASS_DEFAULT];
	return task->slice_ns ?: class_slice_ns[task->exec_class % C2C_MAX_CLASSES];
}

SEC("struct_ops/select_cpu")
__s32 c2c_select_cpu(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	__s32 prev_cpu = ctx[1], cpu;
	__u32 here = bpf_get_smp_processor_id();
	struct cpu_context *context = cpu_context_of(here);
	struct task_context *task = task_context_of(p);

	if (!context)
		return prev_cpu;
	refresh(here);
	if (task)
		resolve(p, task, &context->view);
	fill_masks(context, p, task);
	cpu = pick_one(context, prev_cpu, true);
	if (cpu < 0)
		return prev_cpu;
	dsq_insert(p, C2C_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_of(task), 0);
	return cpu;
}

/* Put @p where one CPU that it may use finds it. */
static __always_inline void
enqueue_for_cpu(struct cpu_context *context, struct task_struct *p, __u64 slice, __u64 deadline,
		__u64 enq_flags)
{
	__s32 cpu = scx_bpf_task_cpu(p);

	/* Preferably where its cell is served, else wherever it may run. */
	if (!mask_has(context->serving, cpu)) {
		__s32 other = pick_one(context, cpu, false);

		if (other < 0 && !mask_has(context->allowed, cpu)) {
#pragma clang loop unroll(full)
			for (int i = 0; i < C2C_MASK_WORDS; i++)
				context->serving[i] = context->allowed[i] & online_mask[i];
			other = pick_one(context, cpu, false);
		}
		if (other >= 0)
			cpu = other;
	}
	c2c_count(COUNT_PER_CPU);
	dsq_insert_vtime(p, cpu, slice, deadline, enq_flags);
	scx_bpf_kick_cpu(cpu, C2C_ENUM(scx_kick_flags, SCX_KICK_IDLE));
}

SEC("struct_ops/enqueue")
void c2c_enqueue(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	__u64 enq_flags = ctx[1], now = bpf_ktime_get_boot_ns(), slice, deadline;
	__u32 here = bpf_get_smp_processor_id(), index;
	struct cpu_context *context = cpu_context_of(here);
	struct task_context *task = task_context_of(p);
	struct c2c_cell *cell;
	__s32 cpu;

	if (!context || (p->flags & PF_KTHREAD &&
			 ((struct task_struct___scx *)p)->nr_cpus_allowed == 1)) {
		dsq_insert(p, C2C_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_of(task), enq_flags);
		return;
	}
	refresh(here);
	if (task)
		resolve(p, task, &context->view);
	slice = slice_of(task);
	deadline = now + class_offset_ns[(task ? task->exec_class : 0) % C2C_MAX_CLASSES];
	if (!fill_masks(context, p, task)) {
		enqueue_for_cpu(context, p, slice, deadline, enq_flags);
		return;
	}
	index = task ? task->cell : 0;
	dsq_insert_vtime(p, C2C_DSQ_CELL_BASE + index, slice, deadline, enq_flags);
	cell = bpf_map_lookup_elem(&c2c_cells, &index);
	if (index && cell && (cell->state != C2C_CELL_LIVE ||
			      cell->generation != task->cell_generation)) {
		/* It was retired while we were here: let everybody look for what is left. */
		rescue_until_ns = now + RESCUE_NS;
		__sync_fetch_and_add(&rescues, 1);
		c2c_count(COUNT_RESCUES);
	}
	cpu = pick_one(context, scx_bpf_task_cpu(p), true);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, C2C_ENUM(scx_kick_flags, SCX_KICK_IDLE));
}

SEC("struct_ops/dispatch")
void c2c_dispatch(__u64 *ctx)
{
	__s32 cpu = ctx[0];
	struct cpu_context *context = cpu_context_of(cpu);
	__u32 turn, nr;

	if (!context) {
		dsq_move_to_local(cpu);
		return;
	}
	refresh(cpu);
	/* Its own queue, its cells' and cell 0's take turns at being first. */
	nr = context->nr_cells + 1 + (!context->is_claimed || is_all_claimed());
	turn = context->turn++;
	for (__u32 i = 0; i < CELLS_OF_CPU + 2; i++) {
		__u32 place = (turn + i) % nr;
		__u64 dsq_id = C2C_DSQ_CELL_BASE;

		if (i >= nr)
			break;
		if (!place)
			dsq_id = cpu;
		else if (place <= context->nr_cells)
			dsq_id += context->cells[(place - 1) % CELLS_OF_CPU];
		if (dsq_move_to_local(dsq_id))
			return;
	}
}

SEC("struct_ops/runnable")
void c2c_runnable(__u64 *ctx)
{
	struct task_context *task = task_context_of((struct task_struct *)ctx[0]);

	if (task)
		task->runnable_ns = bpf_ktime_get_boot_ns();
}

SEC("struct_ops/running")
void c2c_running(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct cpu_context *context = cpu_context_of(bpf_get_smp_processor_id());
	struct task_context *task = task_context_of(p);
	__u64 now = bpf_ktime_get_boot_ns();
	struct c2c_stats *stats;
	__u32 zero = 0;

	if (!task || !context) {
		c2c_count(COUNT_NO_CONTEXT);
		return;
	}
	note_exec(p, task);
	resolve(p, task, &context->view);
	task->running_ns = now;
	c2c_count(C2C_COUNTER_CLASS + task->exec_class % C2C_MAX_CLASSES);
	if (task->is_workload)
		count_run(task);
	stats = bpf_map_lookup_elem(&c2c_stats, &zero);
	if (stats && task->runnable_ns)
		add_to_hist(stats->wait_hist[task->exec_class % C2C_MAX_CLASSES],
			    now - task->runnable_ns);
	task->runnable_ns = 0;
}

SEC("struct_ops/stopping")
void c2c_stopping(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	bool runnable = ctx[1];
	struct task_context *task = task_context_of(p);
	__u64 now = bpf_ktime_get_boot_ns();
	struct c2c_stats *stats;
	__u32 zero = 0;

	if (!task)
		return;
	/* The run in which exec was called is the workload's first, by what it began with. */
	if (note_exec(p, task))
		count_run(task);
	stats = bpf_map_lookup_elem(&c2c_stats, &zero);
	if (stats && task->running_ns)
		add_to_hist(stats->run_hist[task->exec_class % C2C_MAX_CLASSES],
			    now - task->running_ns);
	if (runnable)
		task->runnable_ns = now;
}

/* An error here would fail the fork: without storage a task runs in the default class. */
SEC("struct_ops.s/init_task")
__s32 c2c_init_task(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0], *current;
	struct task_context *task, *parent;

	task = bpf_task_storage_get(&c2c_contexts, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!task)
		return 0;
	task->exec_id = ((struct task_struct___scx *)p)->self_exec_id;
	current = bpf_get_current_task_btf();
	parent = task_context_of(current);
	/* A thread or fork of the workload is the workload; elsewhere the first run corrects it. */
	if (parent) {
		/* It may have called exec in this very run. */
		if (note_exec(current, parent))
			count_run(parent);
		task->home_cgroup_id = parent->home_cgroup_id;
		task->is_workload = parent->is_workload;
	}
	return 0;
}

/* The TID may be another thread's by now, with a row of its own: only an exact row goes. */
SEC("struct_ops/exit_task")
void c2c_exit_task(__u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	__u32 tid = p->pid;
	struct c2c_task *row = bpf_map_lookup_elem(&c2c_tasks, &tid);

	if (!row || row->start_boottime_ns != p->start_boottime || row->tgid != (__u32)p->tgid)
		return;
	if (!bpf_map_delete_elem(&c2c_tasks, &tid))
		c2c_count(COUNT_ROWS_ENDED);
}

SEC("struct_ops/cgroup_exit")
void c2c_cgroup_exit(__u64 *ctx)
{
	__u64 id = c2c_cgroup_id((struct cgroup *)ctx[0]);

	if (!bpf_map_delete_elem(&c2c_cgroups, &id))
		c2c_count(COUNT_ROWS_ENDED);
}

static long create_cell_queue(__u32 index, void *ctx)
{
	__s32 *error = ctx;

	*error = scx_bpf_create_dsq(C2C_DSQ_CELL_BASE + index, -1);
	return *error != 0;
}

static long create_cpu_queue(__u32 cpu, void *ctx)
{
	__s32 *error = ctx;

	*error = scx_bpf_create_dsq(cpu, -1);
	return *error != 0;
}

SEC("struct_ops.s/init")
__s32 c2c_init(__u64 *ctx)
{
	struct c2c_control *control = try_lookup_control();
	const struct cpumask *online;
	__s32 error = 0;

	if (!control || control->abi != C2C_ABI)
		return -22;	/* EINVAL */
	nr_cpus = scx_bpf_nr_cpu_ids();
	if (nr_cpus > C2C_MAX_CPUS)
		return -7;	/* E2BIG */
	nr_words = (nr_cpus + 63) / 64;
	online = scx_bpf_get_online_cpumask();
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++) {
		online_mask[i] = 0;
		if ((__u32)i < nr_words)
			bpf_probe_read_kernel(&online_mask[i], sizeof(online_mask[i]),
					      &online->bits[i]);
	}
	scx_bpf_put_cpumask(online);
	bpf_loop(nr_cpus, create_cpu_queue, &error, 0);
	if (!error)
		bpf_loop(MAX_CELLS, create_cell_queue, &error, 0);
	if (!error)
		control->scheduler_ns = bpf_ktime_get_boot_ns();
	return error;
}

SEC("struct_ops/exit")
void c2c_exit_ops(__u64 *ctx)
{
	struct scx_exit_info *info = (struct scx_exit_info *)ctx[0];
	struct c2c_control *control = try_lookup_control();
	struct exit_record *record;
	__u32 zero = 0;

	if (control)
		control->scheduler_ns = 0;
	record = bpf_map_lookup_elem(&c2c_exit, &zero);
	if (!record)
		return;
	record->kind = READ_KERNEL(info->kind);
	record->code = READ_KERNEL(info->exit_code);
	bpf_probe_read_kernel_str(record->reason, sizeof(record->reason), READ_KERNEL(info->reason));
	bpf_probe_read_kernel_str(record->message, sizeof(record->message), READ_KERNEL(info->msg));
	bpf_probe_read_kernel_str(record->dump, sizeof(record->dump), READ_KERNEL(info->dump));
}

SEC(".struct_ops.link")
struct sched_ext_ops claim2core = {
	.select_cpu = c2c_select_cpu,
	.enqueue = c2c_enqueue,
	.dispatch = c2c_dispatch,
	.runnable = c2c_runnable,
	.running = c2c_running,
	.stopping = c2c_stopping,
	.init_task = c2c_init_task,
	.exit_task = c2c_exit_task,
	.cgroup_exit = c2c_cgroup_exit,
	.init = c2c_init,
	.exit = c2c_exit_ops,
	.timeout_ms = 20000,
	.name = "claim2core",
};
