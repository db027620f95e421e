// SPDX-License-Identifier: Apache-2.0
/*
 * A workload whose very first instructions ask the kernel where it may run.
 *
 * No C library: the entry point is ours, so nothing - no loader, no start-up code - runs
 * between exec and the first system call. It prints one line
 *
 *     cpus=<hex mask> cpu=<number> mems=<hex mask> pid=<number>
 *
 * (affinity and CPU at the first instruction; memory nodes allowed; pid in its own
 * namespace), then ends, or with the argument "pause" stays until it is killed.
 *
 * cc -nostdlib -static -ffreestanding -fno-stack-protector -O2 -o firstmask firstmask.c
 */

#define MASK_BYTES 1024
#define MASK_WORDS (MASK_BYTES / sizeof(unsigned long))
#define MPOL_F_MEMS_ALLOWED 4

#if defined(__x86_64__)

#define SYS_write 1
#define SYS_pause_or_ppoll 34
#define SYS_getpid 39
#define SYS_exit_group 231
#define SYS_sched_getaffinity 204
#define SYS_getcpu 309
#define SYS_get_mempolicy 239

__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call entry\n");

static long syscall5(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

#elif defined(__aarch64__)

#define SYS_write 64
#define SYS_pause_or_ppoll 73
#define SYS_getpid 172
#define SYS_exit_group 94
#define SYS_sched_getaffinity 123
#define SYS_getcpu 168
#define SYS_get_mempolicy 236

__asm__(".globl _start\n"
	"_start:\n"
	"	mov x29, #0\n"
	"	mov x0, sp\n"
	"	bl entry\n");

static long syscall5(long number, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return x0;
}

#else
#error "no entry point for this architecture"
#endif

static unsigned long cpus[MASK_WORDS];
static unsigned long mems[MASK_WORDS];
static char line[4 * MASK_BYTES + 128];
static unsigned long used;

static void put(const char *text)
{
	while (*text)
		line[used++] = *text++;
}

static void put_number(unsigned long value)
{
	char digits[24];
	int count = 0;

	do {
		digits[count++] = '0' + value % 10;
		value /= 10;
	} while (value);
	while (count)
		line[used++] = digits[--count];
}

static void put_mask(const unsigned long *words)
{
	int leading = 1;

	for (long word = MASK_WORDS - 1; word >= 0; word--) {
		for (int shift = 8 * sizeof(unsigned long) - 4; shift >= 0; shift -= 4) {
			unsigned long digit = (words[word] >> shift) & 0xf;

			if (leading && !digit && (word || shift))
				continue;
			leading = 0;
			line[used++] = "0123456789abcdef"[digit];
		}
	}
}

__attribute__((used, noreturn)) void entry(const unsigned long *stack)
{
	long got = syscall5(SYS_sched_getaffinity, 0, MASK_BYTES, (long)cpus, 0, 0);
	unsigned int cpu = 0;
	const char *mode = stack[0] > 1 ? (const char *)stack[2] : "";

	syscall5(SYS_getcpu, (long)&cpu, 0, 0, 0, 0);
	put("cpus=");
	put_mask(cpus);
	put(" cpu=");
	put_number(cpu);
	if (syscall5(SYS_get_mempolicy, 0, (long)mems, 8 * MASK_BYTES, 0,
		     MPOL_F_MEMS_ALLOWED) == 0) {
		put(" mems=");
		put_mask(mems);
	}
	put(" pid=");
	put_number(syscall5(SYS_getpid, 0, 0, 0, 0, 0));
	put("\n");
	syscall5(SYS_write, 1, (long)line, used, 0, 0);

	/* pause(2) on x86-64, ppoll(2) of nothing on arm64: both sleep until a signal. */
	while (mode[0] == 'p')
		syscall5(SYS_pause_or_ppoll, 0, 0, 0, 0, 0);
	for (;;)
		syscall5(SYS_exit_group, got <= 0, 0, 0, 0, 0);
}
