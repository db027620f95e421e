// SPDX-License-Identifier: GPL-2.0-only
/*
 * The maps object: the shared maps, the one program that writes them, and two that read.
 *
 * c2c_mutate is the only way to change a row, as the maps are frozen for user space. One runs
 * at a time (c2c_control.busy_ns); it refuses a writer that has lost the token, resolves the
 * thread and takes its start time in the kernel, stamps the generation, seals, writes.
 * Loads on kernels with or without sched_ext.
 */
#include "kernel.bpf.h"
#include "claim2core.h"
#include "maps.bpf.h"
#include "lookup.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Requests of one writer: each load of this object has its own. Written by user space (mmap). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, C2C_MAX_REQUESTS);
	__type(key, __u32);
	__type(value, struct c2c_request);
} c2c_requests SEC(".maps");

/* Enough for the batch; the rest of a batch is in c2c_requests. */
struct batch {
	__u32 nr_failed;
};

static __always_inline enum c2c_result map_result(long error, struct c2c_request *request)
{
	switch (error) {
	case 0:
		return C2C_RESULT_OK;
	case -E2BIG:
		return C2C_RESULT_FULL;
	case -ENOMEM:
		return C2C_RESULT_NO_MEMORY;
	case -ENOENT:
		return C2C_RESULT_NOT_FOUND;
	}
	request->error = error;
	return C2C_RESULT_KERNEL;
}

static __always_inline __u64 next_generation(struct c2c_control *control)
{
	return ++control->generation;
}

/* A row may name the cell's generation, or 0 for the one it has now. */
static __always_inline enum c2c_result
admit_policy(struct c2c_policy *policy, struct c2c_control *control)
{
	__u32 index = policy->cell;
	struct c2c_cell *cell = bpf_map_lookup_elem(&c2c_cells, &index);

	if (!cell || policy->exec_class >= C2C_MAX_CLASSES || policy->weight > C2C_MAX_WEIGHT)
		return C2C_RESULT_BAD_REQUEST;
	if (cell->state != C2C_CELL_LIVE)
		return C2C_RESULT_CELL_STALE;
	if (policy->cell_generation && policy->cell_generation != cell->generation)
		return C2C_RESULT_CELL_STALE;
	policy->cell_generation = cell->generation;
	policy->generation = next_generation(control);
	return C2C_RESULT_OK;
}

static enum c2c_result put_cell(struct c2c_request *request, struct c2c_control *control)
{
	__u32 index = request->index;
	struct c2c_cell *cell = bpf_map_lookup_elem(&c2c_cells, &index);
	struct c2c_cell *wanted = &request->cell;
	__u64 differs = 0;

	if (!cell || !index)
		return C2C_RESULT_BAD_REQUEST;
	if (cell->state != C2C_CELL_FREE) {
#pragma clang loop unroll(full)
		for (int i = 0; i < C2C_MASK_WORDS; i++)
			differs |= cell->mask[i] ^ wanted->mask[i];
		if (differs || cell->state != C2C_CELL_LIVE)
			return C2C_RESULT_CELL_TAKEN;
		request->generation = cell->generation;
		return C2C_RESULT_OK;
	}
	/* Free cells have no readers of the mask: readers ask for the state first. */
#pragma clang loop unroll(full)
	for (int i = 0; i < C2C_MASK_WORDS; i++)
		cell->mask[i] = wanted->mask[i];
	cell->dsq_id = C2C_DSQ_CELL_BASE + index;
	cell->generation = next_generation(control);
	cell->seal = C2C_SEAL_OF(cell);
	__sync_val_compare_and_swap(&cell->state, C2C_CELL_FREE, C2C_CELL_LIVE);
	request->generation = cell->generation;
	return C2C_RESULT_OK;
}

/* live -> draining -> (drained, by the scheduler) -> free */
static enum c2c_result retire_cell(struct c2c_request *request, struct c2c_control *control)
{
	__u32 index = request->index;
	struct c2c_cell *cell = bpf_map_lookup_elem(&c2c_cells, &index);

	if (!cell || !index)
		return C2C_RESULT_BAD_REQUEST;
	if (cell->state == C2C_CELL_FREE)
		return C2C_RESULT_NOT_FOUND;
	if (request->generation && request->generation != cell->generation)
		return C2C_RESULT_OTHER_GENERATION;
	if (request->op == C2C_REQUEST_DRAIN_CELL) {
		__sync_val_compare_and_swap(&cell->state, C2C_CELL_LIVE, C2C_CELL_DRAINING);
		return C2C_RESULT_OK;
	}
	if (cell->state == C2C_CELL_LIVE)
		return C2C_RESULT_CELL_BUSY;
	if (control->scheduler_ns && cell->state != C2C_CELL_DRAINED)
		return C2C_RESULT_CELL_BUSY;
	cell->state = C2C_CELL_FREE;
	return C2C_RESULT_OK;
}

static enum c2c_result put_cgroup(struct c2c_request *request, struct c2c_control *control)
{
	struct c2c_cgroup row = request->cgroup;
	struct cgroup *cgrp = bpf_cgroup_from_id(row.cgroup_id);
	enum c2c_result result;

	if (!cgrp)
		return C2C_RESULT_NO_CGROUP;
	bpf_cgroup_release(cgrp);
	result = admit_policy(&row.policy, control);
	if (result != C2C_RESULT_OK)
		return result;
	row.seal = C2C_SEAL_OF(&row);
	request->cgroup = row;
	request->generation = row.policy.generation;
	return map_result(bpf_map_update_elem(&c2c_cgroups, &row.cgroup_id, &row, BPF_ANY),
			  request);
}

static enum c2c_result delete_cgroup(struct c2c_request *request)
{
	__u64 id = request->cgroup.cgroup_id;
	struct c2c_cgroup *row = bpf_map_lookup_elem(&c2c_cgroups, &id);

	if (!row)
		return C2C_RESULT_NOT_FOUND;
	if (request->generation && request->generation != row->policy.generation)
		return C2C_RESULT_OTHER_GENERATION;
	return map_result(bpf_map_delete_elem(&c2c_cgroups, &id), request);
}

/* @p is the thread of the request; what identifies it is taken from the kernel. */
static __always_inline enum c2c_result
write_task(struct task_struct *p, struct c2c_request *request, struct c2c_control *control)
{
	struct c2c_task row = request->task;
	__u64 cgroup_id, start_boottime_ns;
	enum c2c_result result;

	if (READ_KERNEL(p->flags) & PF_EXITING)
		return C2C_RESULT_TASK_GONE;
	start_boottime_ns = READ_KERNEL(p->start_boottime);
	if (row.start_boottime_ns && row.start_boottime_ns != start_boottime_ns)
		return C2C_RESULT_OTHER_TASK;
	cgroup_id = c2c_cgroup_id(c2c_task_cgroup(p));
	if (row.cgroup_id && row.cgroup_id != cgroup_id)
		return C2C_RESULT_OTHER_CGROUP;
	result = admit_policy(&row.policy, control);
	if (result != C2C_RESULT_OK)
		return result;
	row.start_boottime_ns = start_boottime_ns;
	row.cgroup_id = cgroup_id;
	row.tid = READ_KERNEL(p->pid);
	row.tgid = READ_KERNEL(p->tgid);
	row.seal = C2C_SEAL_OF(&row);
	request->task = row;
	request->generation = row.policy.generation;
	return map_result(bpf_map_update_elem(&c2c_tasks, &row.tid, &row, BPF_ANY), request);
}

static enum c2c_result put_task(struct c2c_request *request, struct c2c_control *control)
{
	enum c2c_result result = C2C_RESULT_OTHER_TASK;
	struct task_struct *p;

	if (!request->task.pid_ino)
		return C2C_RESULT_BAD_REQUEST;
	p = bpf_task_from_pid(request->task.tid);
	if (!p)
		return C2C_RESULT_TASK_GONE;
	if (c2c_pid_ino(p) == request->task.pid_ino)
		result = write_task(p, request, control);
	bpf_task_release(p);
	return result;
}

/* Inside a pid namespace the caller does not know the TID: the inode number finds the thread. */
static enum c2c_result put_task_of_cgroup(struct c2c_request *request, struct c2c_control *control)
{
	enum c2c_result result = C2C_RESULT_TASK_GONE;
	struct bpf_iter_css_task it;
	struct task_struct *p;
	struct cgroup *cgrp;

	if (!request->task.pid_ino)
		return C2C_RESULT_BAD_REQUEST;
	cgrp = bpf_cgroup_from_id(request->task.cgroup_id);
	if (!cgrp)
		return C2C_RESULT_NO_CGROUP;
	bpf_iter_css_task_new(&it, &cgrp->self, 0);
	while ((p = bpf_iter_css_task_next(&it))) {
		if (c2c_pid_ino(p) == request->task.pid_ino) {
			result = write_task(p, request, control);
			break;
		}
	}
	bpf_iter_css_task_destroy(&it);
	bpf_cgroup_release(cgrp);
	return result;
}

static enum c2c_result delete_task(struct c2c_request *request)
{
	__u32 tid = request->task.tid;
	struct c2c_task *row = bpf_map_lookup_elem(&c2c_tasks, &tid);

	if (!row)
		return C2C_RESULT_NOT_FOUND;
	if (request->task.pid_ino && request->task.pid_ino != row->pid_ino)
		return C2C_RESULT_OTHER_TASK;
	if (request->generation && request->generation != row->policy.generation)
		return C2C_RESULT_OTHER_GENERATION;
	return map_result(bpf_map_delete_elem(&c2c_tasks, &tid), request);
}

static long do_request(__u32 index, void *ctx)
{
	struct c2c_request *request = bpf_map_lookup_elem(&c2c_requests, &index);
	struct c2c_control *control = try_lookup_control();
	enum c2c_result result = C2C_RESULT_BAD_REQUEST;
	struct batch *batch = ctx;

	if (!request || !control)
		return 1;
	request->error = 0;
	switch (request->op) {
	case C2C_REQUEST_PUT_CELL:
		result = put_cell(request, control);
		break;
	case C2C_REQUEST_DRAIN_CELL:
	case C2C_REQUEST_FREE_CELL:
		result = retire_cell(request, control);
		break;
	case C2C_REQUEST_PUT_CGROUP:
		result = put_cgroup(request, control);
		break;
	case C2C_REQUEST_DELETE_CGROUP:
		result = delete_cgroup(request);
		break;
	case C2C_REQUEST_PUT_TASK:
		result = put_task(request, control);
		break;
	case C2C_REQUEST_PUT_TASK_OF_CGROUP:
		result = put_task_of_cgroup(request, control);
		break;
	case C2C_REQUEST_DELETE_TASK:
		result = delete_task(request);
		break;
	}
	request->result = result;
	batch->nr_failed += result != C2C_RESULT_OK;
	c2c_count(C2C_COUNTER_RESULT + result);
	return 0;
}

static __always_inline enum c2c_result
take_token(struct c2c_mutation *mutation, struct c2c_control *control, __u64 now)
{
	__u32 zero = 0;
	struct c2c_cell *everybody_else = bpf_map_lookup_elem(&c2c_cells, &zero);

	if (everybody_else && everybody_else->state == C2C_CELL_FREE) {
		everybody_else->dsq_id = C2C_DSQ_CELL_BASE;
		everybody_else->generation = next_generation(control);
		everybody_else->seal = C2C_SEAL_OF(everybody_else);
		everybody_else->state = C2C_CELL_LIVE;
	}
	control->token = next_generation(control);
	control->taken_ns = now;
	control->writer_tgid = bpf_get_current_pid_tgid() >> 32;
	mutation->token = control->token;
	return C2C_RESULT_OK;
}

static __always_inline enum c2c_result
mutate(struct c2c_mutation *mutation, struct c2c_control *control, __u64 now)
{
	struct batch batch = {};

	if (mutation->op == C2C_OP_TAKE_TOKEN)
		return take_token(mutation, control, now);
	if (!mutation->token || mutation->token != control->token)
		return C2C_RESULT_STALE_WRITER;
	switch (mutation->op) {
	case C2C_OP_RAISE_FLOOR:
		if (mutation->value > control->generation)
			return C2C_RESULT_BAD_REQUEST;
		if (mutation->value < control->floor)
			return C2C_RESULT_FLOOR_LOWER;
		control->floor = mutation->value;
		return C2C_RESULT_OK;
	case C2C_OP_SET_FLAGS:
		control->flags = mutation->value;
		return C2C_RESULT_OK;
	case C2C_OP_ROWS:
		if (mutation->nr_requests > C2C_MAX_REQUESTS)
			return C2C_RESULT_BAD_REQUEST;
		bpf_loop(mutation->nr_requests, do_request, &batch, 0);
		mutation->nr_failed = batch.nr_failed;
		return C2C_RESULT_OK;
	}
	return C2C_RESULT_BAD_REQUEST;
}

SEC("syscall")
int c2c_mutate(struct c2c_mutation *mutation)
{
	struct c2c_control *control = try_lookup_control();
	__u64 now = bpf_ktime_get_boot_ns();
	__u64 busy;

	if (!control)
		return 0;
	if (mutation->abi != C2C_ABI || control->abi != C2C_ABI) {
		mutation->result = C2C_RESULT_OTHER_ABI;
		return 0;
	}
	busy = control->busy_ns;
	if ((busy && (__s64)(now - busy) < (__s64)C2C_BUSY_LIMIT_NS) ||
	    __sync_val_compare_and_swap(&control->busy_ns, busy, now) != busy) {
		mutation->result = C2C_RESULT_BUSY;
		return 0;
	}
	mutation->result = mutate(mutation, control, now);
	mutation->generation = control->generation;
	/* Unless we took so long that another one took over. */
	__sync_val_compare_and_swap(&control->busy_ns, now, 0);
	return 0;
}

/* What governs this thread, in the kernel's own words. */
SEC("syscall")
int c2c_resolve(struct c2c_view *view)
{
	struct c2c_control *control = try_lookup_control();
	struct c2c_view found = {};
	struct task_struct *p;

	p = bpf_task_from_pid(view->tid);
	if (!p || !control) {
		view->result = C2C_RESULT_TASK_GONE;
		if (p)
			bpf_task_release(p);
		return 0;
	}
	bpf_rcu_read_lock();
	c2c_look_up(p, &found, control);
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	*view = found;
	return 0;
}

/* One struct c2c_view for each thread that a row concerns, valid or not. */
SEC("iter/task")
int c2c_iterate(struct bpf_iter__task *ctx)
{
	struct c2c_control *control = try_lookup_control();
	struct task_struct *p = ctx->task;
	struct c2c_view view = {};

	if (!p || !control)
		return 0;
	c2c_look_up(p, &view, control);
	if (view.task_verdict == C2C_VERDICT_MISS && view.cgroup_verdict == C2C_VERDICT_MISS)
		return 0;
	bpf_seq_write(ctx->meta->seq, &view, sizeof(view));
	return 0;
}
