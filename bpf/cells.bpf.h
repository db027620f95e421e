/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which cells a CPU serves, which CPUs serve a cell, and which of them a thread may take.
 */
#ifndef CLAIM2CORE_CELLS_BPF_H
#define CLAIM2CORE_CELLS_BPF_H

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

#endif /* CLAIM2CORE_CELLS_BPF_H */
