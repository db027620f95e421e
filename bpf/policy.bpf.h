/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which policy a thread has, remembered until anything was written, and whether it is a workload.
 */
#ifndef CLAIM2CORE_POLICY_BPF_H
#define CLAIM2CORE_POLICY_BPF_H

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

#endif /* CLAIM2CORE_POLICY_BPF_H */
