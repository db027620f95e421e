/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From a thread to the policy that governs it: the one place where rows are validated.
 *
 * Rule: copy the row, then judge the copy. A row that does not hold in every respect is no row:
 * the thread runs in the default class, in cell 0 - never an error. A valid TID row wins over
 * the cgroup's; of cgroup rows the nearest one up the tree decides, valid or not.
 * Include after claim2core.h, kernel.bpf.h and maps.bpf.h.
 */
#ifndef CLAIM2CORE_LOOKUP_BPF_H
#define CLAIM2CORE_LOOKUP_BPF_H

/* Fold @nr words; with a constant @nr the loop unrolls. */
static __always_inline __u64 c2c_seal(const void *row, __u32 nr)
{
	const __u64 *words = row;
	__u64 seal = 0x636c61696d32636fULL;	/* so that a row of zeroes is not sealed */

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < nr; i++) {
		seal = (seal ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		seal ^= seal >> 32;
	}
	return seal;
}

#define C2C_SEAL_OF(row) \
	c2c_seal((row), __builtin_offsetof(typeof(*(row)), seal) / sizeof(__u64))

static __always_inline struct c2c_control *try_lookup_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&c2c_control, &zero);
}

static __always_inline void c2c_count(__u32 counter)
{
	__u32 zero = 0;
	struct c2c_stats *stats = bpf_map_lookup_elem(&c2c_stats, &zero);

	if (stats && counter < C2C_NR_COUNTERS)
		stats->counters[counter]++;
}

static __always_inline __u64 c2c_pid_ino(struct task_struct *p)
{
	struct pid *pid = READ_KERNEL(p->thread_pid);

	return pid ? READ_KERNEL(pid->ino) : 0;
}

static __always_inline __u64 c2c_cgroup_id(struct cgroup *cgrp)
{
	struct kernfs_node *kn = cgrp ? READ_KERNEL(cgrp->kn) : NULL;

	return kn ? READ_KERNEL(kn->id) : 0;
}

static __always_inline struct cgroup *c2c_task_cgroup(struct task_struct *p)
{
	struct css_set *set = READ_KERNEL(p->cgroups);

	return set ? READ_KERNEL(set->dfl_cgrp) : NULL;
}

/* What does not depend on whose row it is. @policy is a copy. */
static __always_inline enum c2c_verdict
c2c_check_policy(const struct c2c_policy *policy, const struct c2c_control *control, __u64 now)
{
	__u32 index = policy->cell;
	struct c2c_cell *cell;

	if (control->flags & C2C_CONTROL_SUSPENDED)
		return C2C_VERDICT_SUSPENDED;
	if (!policy->generation || policy->generation < control->floor)
		return C2C_VERDICT_OLD_GENERATION;
	cell = bpf_map_lookup_elem(&c2c_cells, &index);
	/* A draining cell keeps the rows that it has. */
	if (!cell || cell->state == C2C_CELL_FREE || cell->generation != policy->cell_generation)
		return C2C_VERDICT_CELL_STALE;
	if (policy->lease_end_ns && policy->lease_end_ns <= now)
		return C2C_VERDICT_LEASE_OVER;
	return C2C_VERDICT_OK;
}

static __always_inline enum c2c_verdict
c2c_check_task(struct c2c_task *copy, const struct c2c_view *view,
	       const struct c2c_control *control, __u64 now)
{
	if (copy->seal != C2C_SEAL_OF(copy) || copy->tid != view->tid)
		return C2C_VERDICT_TORN;
	if (copy->pid_ino != view->pid_ino || copy->start_boottime_ns != view->start_boottime_ns)
		return C2C_VERDICT_OTHER_TASK;
	if (copy->cgroup_id != view->cgroup_id)
		return C2C_VERDICT_OTHER_CGROUP;
	return c2c_check_policy(&copy->policy, control, now);
}

static __always_inline enum c2c_verdict
c2c_check_cgroup(struct c2c_cgroup *copy, __u64 id, const struct c2c_control *control, __u64 now)
{
	if (copy->seal != C2C_SEAL_OF(copy) || copy->cgroup_id != id)
		return C2C_VERDICT_TORN;
	return c2c_check_policy(&copy->policy, control, now);
}

/* Fill in @view for @p. Call under RCU or where @p cannot leave its cgroup. */
static __always_inline void
c2c_look_up(struct task_struct *p, struct c2c_view *view, const struct c2c_control *control)
{
	struct cgroup *cgrp = c2c_task_cgroup(p);
	__u64 now = bpf_ktime_get_boot_ns();
	struct c2c_task *task;
	int level;

	view->tid = READ_KERNEL(p->pid);
	view->tgid = READ_KERNEL(p->tgid);
	view->start_boottime_ns = READ_KERNEL(p->start_boottime);
	view->pid_ino = c2c_pid_ino(p);
	view->cgroup_id = c2c_cgroup_id(cgrp);
	view->task_verdict = C2C_VERDICT_MISS;
	view->cgroup_verdict = C2C_VERDICT_MISS;

	task = bpf_map_lookup_elem(&c2c_tasks, &view->tid);
	if (task) {
		struct c2c_task copy = *task;

		view->task_verdict = c2c_check_task(&copy, view, control, now);
		if (view->task_verdict == C2C_VERDICT_OK) {
			view->policy = copy.policy;
			view->source = C2C_SOURCE_TASK;
		}
	}
	if (!cgrp)
		return;
	level = READ_KERNEL(cgrp->level);
	for (int up = 0; up < CGROUP_MAX_DEPTH; up++) {
		struct cgroup *ancestor = NULL;
		struct c2c_cgroup *row;
		__u64 id;

		if (level - up < 0)
			break;
		bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
				      __builtin_preserve_access_index(&cgrp->ancestors[0]) +
				      (level - up));
		id = c2c_cgroup_id(ancestor);
		row = bpf_map_lookup_elem(&c2c_cgroups, &id);
		if (row) {
			struct c2c_cgroup copy = *row;

			view->governing_cgroup_id = id;
			view->cgroup_verdict = c2c_check_cgroup(&copy, id, control, now);
			if (view->cgroup_verdict == C2C_VERDICT_OK &&
			    view->source == C2C_SOURCE_NONE) {
				view->policy = copy.policy;
				view->source = C2C_SOURCE_CGROUP;
			}
			break;
		}
	}
}

#endif /* CLAIM2CORE_LOOKUP_BPF_H */
