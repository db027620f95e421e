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

char LICENSE[] SEC("license") = "GPL";

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

/* -- which cells a CPU serves ----------------------------------------------------------- */

struct scan {
	struct cpu_context *context;
	__u32 cpu;
	bool rescuing;
};

static long scan_cell(__u32 index, void *ctx)
{
	struct scan *scan = ctx;
	struct cpu_context *context = scan->context;
	struct c2c_cell *cell = bpf_map_lookup_elem(&c2c_cells, &index);
	bool wanted;
	__u32 state;

	if (!cell || !context)
		return 1;
	state = cell->state;
	if (state == C2C_CELL_LIVE) {
#pragma clang loop unroll(full)
		for (int i = 0; i < C2C_MASK_WORDS; i++)
			context->claimed[i] |= cell->mask[i];
		wanted = mask_has(cell->mask, scan->cpu);
		context->is_claimed |= wanted;
	} else {
		wanted = state == C2C_CELL_DRAINING;
		if (wanted && !scx_bpf_dsq_nr_queued(C2C_DSQ_CELL_BASE + index))
			__sync_val_compare_and_swap(&cell->state, C2C_CELL_DRAINING,
						    C2C_CELL_DRAINED);
	}
	if (!wanted && scan->rescuing)
		wanted = scx_bpf_dsq_nr_queued(C2C_DSQ_CELL_BASE + index) > 0;
	if (!wanted)
		return 0;
	if (context->nr_cells < CELLS_OF_CPU)
		context->cells[context->nr_cells++ % CELLS_OF_CPU] = index;
	else
		context->nr_left_out++;
	return 0;
}

static long scan_from_one(__u32 index, void *ctx)
{
	return scan_cell(index + 1, ctx);
}

/* Look at the cells anew if anything was written since. */
static void refresh(__u32 cpu)
{
	struct c2c_control *control = try_lookup_control();
	struct cpu_context *context = cpu_context_of(cpu);
	struct scan scan = { .context = context, .cpu = cpu };
	__u64 generation;

	if (!control || !context)
		return;
	generation = control->generation;
	if (rescue_until_ns)
		scan.rescuing = bpf_ktime_get_boot_ns() < rescue_until_ns;
	if (context->generation == generation && context->rescue == rescues && !scan.rescuing &&
	    !context->nr_left_out)
		return;
	context->rescue = rescues;
	context->nr_cells = 0;
	context->is_claimed = 0;
	context->nr_left_out = 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++)
		context->claimed[i] = 0;
	bpf_loop(MAX_CELLS - 1, scan_from_one, &scan, 0);
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++)
		claimed_mask[i] = context->claimed[i];
	if (context->nr_left_out)
		c2c_count(COUNT_CELLS_LEFT_OUT);
	/* While a mutation runs, its cells may come after its generation. */
	context->generation = control->busy_ns ? 0 : generation;
}

/* The online CPUs that serve a cell; of cell 0, those that no claim has, or all. */
static __always_inline void
fill_serving(__u64 *serving, __u32 index, const struct c2c_cell *cell)
{
	__u64 any = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++) {
		serving[i] = online_mask[i] & (index ? cell->mask[i] : ~claimed_mask[i]);
		any |= serving[i];
	}
	if (any || index)
		return;
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++)
		serving[i] = online_mask[i];
}

static __always_inline bool is_all_claimed(void)
{
	__u64 open = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++)
		open |= online_mask[i] & ~claimed_mask[i];
	return !open;
}

static __always_inline void fill_allowed(__u64 *allowed, struct task_struct *p)
{
	const struct cpumask *mask = READ_KERNEL(((struct task_struct___scx *)p)->cpus_ptr);

#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++) {
		allowed[i] = 0;
		if ((__u32)i < nr_words)
			bpf_probe_read_kernel(&allowed[i], sizeof(allowed[i]), &mask->bits[i]);
	}
}

/* -- which policy a thread has ---------------------------------------------------------- */

static void resolve(struct task_struct *p, struct task_context *task, struct c2c_view *view)
{
	struct c2c_control *control = try_lookup_control();
	__u64 generation, floor;
	__u32 flags;
	bool is_quiet;

	if (!control)
		return;
	generation = control->generation;
	floor = control->floor;
	flags = control->flags;
	if (task->generation == generation && task->floor == floor && task->flags == flags &&
	    task->cgroup_id == c2c_cgroup_id(c2c_task_cgroup(p)) && task->tid == (__u32)p->pid &&
	    (!task->lease_end_ns || bpf_ktime_get_boot_ns() < task->lease_end_ns))
		return;
	/* A row comes after its generation: what is read while one is written may be the old. */
	is_quiet = !control->busy_ns;
	__builtin_memset(view, 0, sizeof(*view));
	c2c_look_up(p, view, control);
	c2c_count(C2C_COUNTER_VERDICT + (view->task_verdict != C2C_VERDICT_MISS ?
					 view->task_verdict : view->cgroup_verdict));
	task->cgroup_id = view->cgroup_id;
	task->tid = view->tid;
	task->cell = view->policy.cell;
	task->cell_generation = view->policy.cell_generation;
	task->lease_end_ns = view->policy.lease_end_ns;
	task->slice_ns = view->policy.slice_ns;
	task->weight = view->policy.weight;
	task->exec_class = view->policy.exec_class % C2C_MAX_CLASSES;
	task->source = view->source;
	task->floor = floor;
	task->flags = flags;
	is_quiet = is_quiet && !control->busy_ns && control->generation == generation;
	task->generation = is_quiet ? generation : 0;
}

static __always_inline struct mnt_namespace *mounts_of(struct task_struct *p)
{
	struct nsproxy *nsproxy = READ_KERNEL(((struct task_struct___scx *)p)->nsproxy);

	return nsproxy ? READ_KERNEL(nsproxy->mnt_ns) : NULL;
}

/*
 * The workload begins with the exec that is called in a file tree of its own. A runtime's init
 * may call exec in the container's cgroup as well (runc does): in its parent's tree.
 */
static __always_inline bool has_own_mounts(struct task_struct *p)
{
	struct task_struct *parent = READ_KERNEL(((struct task_struct___scx *)p)->real_parent);

	return parent && mounts_of(p) != mounts_of(parent);
}

/*
 * Exec counts for the cgroup in which it happened; a thread moved by others starts anew.
 * Tells whether a workload called exec since it was last looked at.
 */
static __always_inline bool note_exec(struct task_struct *p, struct task_context *task)
{
	__u32 exec_id = ((struct task_struct___scx *)p)->self_exec_id;
	__u64 cgroup_id = c2c_cgroup_id(c2c_task_cgroup(p));
	bool has_called_exec = exec_id != task->exec_id;

	if (cgroup_id != task->home_cgroup_id)
		task->is_workload = 0;
	if (has_called_exec && has_own_mounts(p))
		task->is_workload = 1;
	task->exec_id = exec_id;
	task->home_cgroup_id = cgroup_id;
	return has_called_exec && task->is_workload;
}

static __always_inline void count_run(struct task_context *task)
{
	struct runs *runs = bpf_map_lookup_elem(&c2c_runs, &task->home_cgroup_id);
	bool has_policy = task->source != C2C_SOURCE_NONE;

	c2c_count(has_policy ? COUNT_WITH_POLICY : COUNT_WITHOUT_POLICY);
	if (!runs) {
		struct runs first = { .with_policy = has_policy, .without_policy = !has_policy };

		bpf_map_update_elem(&c2c_runs, &task->home_cgroup_id, &first, BPF_ANY);
	} else if (!has_policy) {
		__sync_fetch_and_add(&runs->without_policy, 1);
	} else if (!__sync_fetch_and_add(&runs->with_policy, 1) && runs->without_policy) {
		c2c_count(COUNT_LATE_CGROUPS);
	}
}

/* -- choosing a CPU --------------------------------------------------------------------- */

struct pick {
	struct cpu_context *context;
	__u32 first;
	__s32 cpu;
	bool idle;
};

static long pick_cpu(__u32 step, void *ctx)
{
	struct pick *pick = ctx;
	struct cpu_context *context = pick->context;
	__u32 cpu = pick->first + step;

	if (!context || !nr_cpus)
		return 1;
	if (cpu >= nr_cpus)
		cpu -= nr_cpus;
	if (!mask_has(context->serving, cpu))
		return 0;
	if (pick->idle && !scx_bpf_test_and_clear_cpu_idle(cpu))
		return 0;
	pick->cpu = cpu;
	return 1;
}

/* One of context->serving, at or after @first; -1 if none fits. */
static __always_inline __s32 pick_one(struct cpu_context *context, __u32 first, bool idle)
{
	struct pick pick = { .context = context, .first = first, .cpu = -1, .idle = idle };

	bpf_loop(nr_cpus, pick_cpu, &pick, 0);
	return pick.cpu;
}

/*
 * Fill context->allowed with the CPUs that @p may use and context->serving with those of them
 * that serve its cell; tell whether they are all that serve it.
 */
static __always_inline bool
fill_masks(struct cpu_context *context, struct task_struct *p, const struct task_context *task)
{
	__u32 index = task ? task->cell : 0;
	struct c2c_cell *cell = bpf_map_lookup_elem(&c2c_cells, &index);
	__u64 missing = 0, any = 0;

	fill_allowed(context->allowed, p);
	if (!cell)
		return false;
	fill_serving(context->serving, index, cell);
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++) {
		missing |= context->serving[i] & ~context->allowed[i];
		context->serving[i] &= context->allowed[i];
		any |= context->serving[i];
	}
	return any && !missing;
}

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
