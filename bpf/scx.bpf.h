/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler uses of sched_ext, for kernels from 6.12 on.
 *
 * Everything is weak or relocated: a kfunc that changed its name or signature has one
 * declaration per generation (libbpf drops the last ___suffix of a name), members and enum
 * values come from the running kernel's BTF. A wrapper asks for the newest first; what the
 * kernel lacks is dead code when the object is loaded.
 */
#ifndef CLAIM2CORE_SCX_BPF_H
#define CLAIM2CORE_SCX_BPF_H

#define BPF_MAP_TYPE_LRU_HASH		9
#define BPF_MAP_TYPE_TASK_STORAGE	29
#define BPF_LOCAL_STORAGE_GET_F_CREATE	1

#define PF_KTHREAD			0x00200000	/* include/linux/sched.h */

static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_probe_read_kernel_str)(void *dst, __u32 size, const void *src) =
	(void *)115;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *task, void *value,
					   __u64 flags) = (void *)156;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	__u64 bits[1];
};

struct mnt_namespace;

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

/* Members beyond those in kernel.bpf.h. */
struct task_struct___scx {
	struct task_struct *real_parent;
	struct nsproxy *nsproxy;
	const struct cpumask *cpus_ptr;
	int nr_cpus_allowed;
	__u32 self_exec_id;		/* counts execs; inherited by fork */
};

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	__s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

struct scx_bpf_dsq_insert_vtime_args {
	__u64 dsq_id;
	__u64 slice;
	__u64 vtime;
	__u64 enq_flags;
};

#pragma clang attribute pop

/* Members are matched by name, arguments come as an array; what a kernel lacks must be zero. */
struct sched_ext_ops {
	__s32 (*select_cpu)(__u64 *ctx);
	void (*enqueue)(__u64 *ctx);
	void (*dispatch)(__u64 *ctx);
	void (*runnable)(__u64 *ctx);
	void (*running)(__u64 *ctx);
	void (*stopping)(__u64 *ctx);
	__s32 (*init_task)(__u64 *ctx);
	void (*exit_task)(__u64 *ctx);
	void (*cgroup_exit)(__u64 *ctx);
	__s32 (*init)(__u64 *ctx);
	void (*exit)(__u64 *ctx);
	__u64 flags;
	__u32 timeout_ms;
	__u32 exit_dump_len;
	__u64 hotplug_seq;
	char name[128];
};

/* Only the names count. The values differ from the kernel's; see C2C_ENUM. */
enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002ULL,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
};

#define C2C_ENUM(type, name)	\
	__builtin_preserve_enum_value(*(typeof(enum type) *)name, 1 /* value */)

__s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym __weak;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq_id) __ksym __weak;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym __weak;
bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym __weak;
__u32 scx_bpf_nr_cpu_ids(void) __ksym __weak;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym __weak;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym __weak;
__s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym __weak;

/* 6.12 */
void scx_bpf_dispatch(struct task_struct *p, __u64 dsq_id, __u64 slice,
		      __u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 vtime,
			    __u64 enq_flags) __ksym __weak;
bool scx_bpf_consume(__u64 dsq_id) __ksym __weak;
/* 6.13 */
void scx_bpf_dsq_insert___v1(struct task_struct *p, __u64 dsq_id, __u64 slice,
			     __u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime___v1(struct task_struct *p, __u64 dsq_id, __u64 slice,
				   __u64 vtime, __u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v1(__u64 dsq_id) __ksym __weak;
/* 6.19 */
bool scx_bpf_dsq_insert___v2___new(struct task_struct *p, __u64 dsq_id, __u64 slice,
				   __u64 enq_flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
/* 7.1 */
bool scx_bpf_dsq_move_to_local___v2___new(__u64 dsq_id, __u64 enq_flags) __ksym __weak;

static __always_inline void
dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 enq_flags)
{
	if (scx_bpf_dsq_insert___v2___new)
		scx_bpf_dsq_insert___v2___new(p, dsq_id, slice, enq_flags);
	else if (scx_bpf_dsq_insert___v1)
		scx_bpf_dsq_insert___v1(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch(p, dsq_id, slice, enq_flags);
}

static __always_inline void
dsq_insert_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 vtime, __u64 enq_flags)
{
	if (__scx_bpf_dsq_insert_vtime) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq_id,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (scx_bpf_dsq_insert_vtime___v1) {
		scx_bpf_dsq_insert_vtime___v1(p, dsq_id, slice, vtime, enq_flags);
	} else {
		scx_bpf_dispatch_vtime(p, dsq_id, slice, vtime, enq_flags);
	}
}

static __always_inline bool dsq_move_to_local(__u64 dsq_id)
{
	if (scx_bpf_dsq_move_to_local___v2___new)
		return scx_bpf_dsq_move_to_local___v2___new(dsq_id, 0);
	if (scx_bpf_dsq_move_to_local___v1)
		return scx_bpf_dsq_move_to_local___v1(dsq_id);
	return scx_bpf_consume(dsq_id);
}

#endif /* CLAIM2CORE_SCX_BPF_H */
