// SPDX-License-Identifier: GPL-2.0-only
/*
 * The I/O bitmap as debuggers and core dumps see it
 *
 * PTRACE_GETREGSET with NT_386_IOPERM reads the I/O bitmap of a tracee, and a
 * core dump has a note of that type for each thread which has a bitmap. The
 * format is that of the hardware: 8192 bytes, and a bit that is set disables
 * the port. It does not depend on how much of it the kernel stores. A task
 * without a bitmap has no such register set, and iopl(3) does not show in it.
 *
 * A tracee that executes 64 bit code has a register set in units of 8 bytes,
 * one that executes 32 bit code has one in units of 4.
 *
 * Ports are enabled, but never touched. core_pattern is not changed: where it
 * leads elsewhere than to the current directory, what depends on it is skipped.
 */
#include "kselftest_harness.h"
#include "ioport_helper.h"

#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/procfs.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MAX_CALLS	6

/* A call of ioperm(). A negative num disables, 0 ends a list */
struct call {
	int	from, num;
};

/* Do the calls, in the task if @doing, and to @map */
static bool do_calls(const struct call *calls, bool doing, struct ioport_map *map)
{
	bool done = true;
	int i;

	ioport_clear_all(map);
	for (i = 0; i < MAX_CALLS && calls[i].num; i++) {
		ioport_set(map, calls[i].from, abs(calls[i].num), calls[i].num > 0);
		if (doing)
			done &= !ioperm(calls[i].from, abs(calls[i].num), calls[i].num > 0);
	}

	return done;
}

static const struct call some_ports[][MAX_CALLS] = {
	{ { 0x80, 1 } },
	{ { 0, 1 } },
	{ { 7, 2 } },
	{ { 31, 2 } },
	{ { 63, 2 } },
	{ { 511, 2 } },
	{ { 1023, 1 } },
	{ { 1024, 1 } },
	{ { 65535, 1 } },
	{ { 65534, 1 } },
	{ { 0, 65536 } },
	{ { 1, 65534 } },
	{ { 0, 65536 }, { 0x80, -1 } },
	{ { 0, 65536 }, { 65535, -1 } },
	{ { 0, 65536 }, { 0x400, -0xf000 } },
	{ { 0x80, 1 }, { 65535, 1 } },
	{ { 0x80, 1 }, { 65535, 1 }, { 65535, -1 } },
	{ { 0x80, 1 }, { 65535, 1 }, { 0x80, -1 } },
	{ { 0x378, 3 }, { 0x70, 2 }, { 0xcf8, 8 }, { 0xc000, 0x1000 }, { 0xc800, -1 } },
	{ { 512, 512 }, { 1536, 512 }, { 3072, 1 } },
};

static const struct call no_ports[][MAX_CALLS] = {
	{ },
	{ { 0x80, -1 } },
	{ { 0x80, 1 }, { 0x80, -1 } },
	{ { 0, 65536 }, { 0, -65536 } },
};

#ifdef __x86_64__
/*
 * Go on in 32 bit code, which stops with SIGTRAP. With lret it would be
 * simpler, but QEMU's TCG before 9.1 crashes the guest then.
 */
static void stop_in_32bit_code(void)
{
	/* The code segment of 32 bit programs on a 64 bit kernel */
	struct {
		uint32_t	ip;
		uint16_t	cs;
	} target = { .cs = 0x23 };
	uint8_t *code;

	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (code == MAP_FAILED)
		_exit(KSFT_FAIL);

	/* INT3 */
	memset(code, 0xcc, 4096);
	target.ip = (uintptr_t)code;
	asm volatile ("ljmpl *%0" : : "m" (target) : "memory");
}
#else
static void stop_in_32bit_code(void)
{
	raise(SIGTRAP);
}
#endif

FIXTURE(regset) {
	pid_t			pid;
	struct ioport_map	map;
};

FIXTURE_VARIANT(regset) {
	/* The unit of the register set of a tracee that stops with the signal */
	size_t	unit;
	int	signal;
};

#ifdef __x86_64__
FIXTURE_VARIANT_ADD(regset, code_64)	{ .unit = 8, .signal = SIGSTOP };
#endif
FIXTURE_VARIANT_ADD(regset, code_32)	{ .unit = 4, .signal = SIGTRAP };

/* Start a tracee which makes the calls and stops. Returns the signal, or -1 */
static int start(FIXTURE_DATA(regset) *self, const FIXTURE_VARIANT(regset) *variant,
		 const struct call *calls, int level)
{
	int status;

	self->pid = ioport_fork();
	if (!self->pid) {
		if (iopl(level) || !do_calls(calls, true, &self->map))
			_exit(KSFT_FAIL);
		if (variant->signal == SIGTRAP && !ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			stop_in_32bit_code();
		ioport_stop();
		_exit(KSFT_FAIL);
	}
	do_calls(calls, false, &self->map);
	if (self->pid < 0 || ioport_wait(self->pid, &status) != self->pid ||
	    !WIFSTOPPED(status))
		return -1;

	return WSTOPSIG(status);
}

/* A read of @size bytes has to give @error, or the beginning of the map */
static void expect_regset(struct __test_metadata *_metadata, FIXTURE_DATA(regset) *self,
			  size_t size, int error)
{
	/* Room for more, to see what is written behind the register set */
	static uint8_t buf[IOPORT_MAP_BYTES + 4096];
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	const uint8_t unused = 0x5a;
	size_t len = 0, i;
	int ret;

	memset(buf, unused, sizeof(buf));
	ret = ptrace(PTRACE_GETREGSET, self->pid, (void *)NT_386_IOPERM, &iov);
	EXPECT_EQ(error, ret ? errno : 0) {
		TH_LOG("size %zu", size);
	}
	if (!error) {
		len = size < sizeof(self->map) ? size : sizeof(self->map);
		EXPECT_TRUE(iov.iov_len == len && !memcmp(&self->map, buf, len)) {
			TH_LOG("size %zu", size);
		}
	}

	for (i = len; i < sizeof(buf) && buf[i] == unused; i++)
		;
	EXPECT_EQ(sizeof(buf), i) {
		TH_LOG("size %zu: something was written behind the end", size);
	}
}

FIXTURE_SETUP(regset)
{
	const char *reason = ioport_skip_reason();
	struct user_regs_struct regs;
	struct iovec iov = { .iov_base = &regs, .iov_len = sizeof(regs) };
	int signal;

	if (reason)
		SKIP(return, "%s", reason);

	signal = start(self, variant, no_ports[0], 0);
	ASSERT_LT(0, signal);
	if (signal != variant->signal)
		SKIP(return, "32 bit code cannot be executed");

	/* As many registers of 4 or 8 bytes as the code has */
	ASSERT_EQ(0, ptrace(PTRACE_GETREGSET, self->pid, (void *)NT_PRSTATUS, &iov));
	ioport_end(self->pid);
	if (iov.iov_len != (variant->unit == 8 ? 27 * 8 : 17 * 4))
		SKIP(return, "kernel without IA32_EMULATION");
}

FIXTURE_TEARDOWN(regset) {}

TEST_F(regset, no_bitmap)
{
	static const size_t sizes[] = { 0, 8, IOPORT_MAP_BYTES };
	unsigned int i, j, level;

	for (i = 0; i < ARRAY_SIZE(no_ports); i++) {
		for (level = 0; level <= 3; level += 3) {
			ASSERT_LT(0, start(self, variant, no_ports[i], level));
			for (j = 0; j < ARRAY_SIZE(sizes); j++)
				expect_regset(_metadata, self, sizes[j], ENXIO);
			ioport_end(self->pid);
		}
	}
}

/* Who asks for less gets the beginning, and nothing is written behind that */
TEST_F(regset, contents_and_sizes)
{
	const size_t unit = variant->unit;
	const size_t good[] = {
		0, unit, 2 * unit, 16, 64, 128, 4096, 8192 - unit, 8192,
		8192 + unit, 8192 + 4096,
	};
	const size_t bad[] = {
		1, unit - 1, unit + 1, unit / 2, 8191, 8193, 8192 + unit / 2,
	};
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(some_ports); i++) {
		ASSERT_LT(0, start(self, variant, some_ports[i], 0));
		for (j = 0; j < ARRAY_SIZE(good); j++)
			expect_regset(_metadata, self, good[j], 0);
		for (j = 0; j < ARRAY_SIZE(bad); j++)
			expect_regset(_metadata, self, bad[j], EINVAL);
		ioport_end(self->pid);
	}
}

/* iopl(3) neither hides the bitmap nor changes it */
TEST_F(regset, iopl_is_not_in_it)
{
	ASSERT_LT(0, start(self, variant, some_ports[0], 3));
	expect_regset(_metadata, self, IOPORT_MAP_BYTES, 0);
	ioport_end(self->pid);
}

/* A tracer can neither enable nor disable a port */
TEST_F(regset, read_only)
{
	struct ioport_map wish = { };
	struct iovec iov = { .iov_base = &wish, .iov_len = sizeof(wish) };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		ASSERT_LT(0, start(self, variant, i ? some_ports[0] : no_ports[0], 0));
		EXPECT_EQ(-1, ptrace(PTRACE_SETREGSET, self->pid,
				     (void *)NT_386_IOPERM, &iov));
		EXPECT_TRUE(!i || errno == EOPNOTSUPP);
		expect_regset(_metadata, self, IOPORT_MAP_BYTES, i ? 0 : ENXIO);
		ioport_end(self->pid);
	}
}

TEST_F(regset, bad_address)
{
	struct iovec iov = { .iov_base = NULL, .iov_len = IOPORT_MAP_BYTES };

	ASSERT_LT(0, start(self, variant, some_ports[0], 0));
	EXPECT_EQ(-1, ptrace(PTRACE_GETREGSET, self->pid, (void *)NT_386_IOPERM, &iov));
	EXPECT_EQ(EFAULT, errno);
	ioport_end(self->pid);
}

/*
 * Core dumps of several threads, each with its own ports
 */
#define THREADS			8
#define STACK_SIZE		65536

struct thread {
	struct call	calls[MAX_CALLS];
	int		level;
	/* 0 until the calls are done */
	pid_t		tid;
	/* The note of its ports was found */
	bool		found;
};

static const struct thread all_threads[THREADS] = {
	{ .calls = { { 0x80, 1 }, { 65535, 1 } } },
	{ .calls = { { 0x378, 3 }, { 0xd000, 600 }, { 0xd100, -1 } } },
	/* These have no bitmap */
	{ .calls = { { 0x80, 1 }, { 0x80, -1 } } },
	{ .level = 3 },
	/* One low port is enough for the whole note */
	{ .calls = { { 0, 1 } } },
	{ .calls = { { 0x1e, 1 } } },
	{ .calls = { { 0x2e, 1 } } },
	{ .calls = { { 62, 1 } } },
};

FIXTURE(coredump) {
	/* Written by the process that dumps core, whose main thread is the first */
	struct thread	threads[THREADS];
};

FIXTURE_VARIANT(coredump) {
	/* Which of all_threads[] is the main thread and dumps core */
	int	first;
};

FIXTURE_VARIANT_ADD(coredump, by_thread_with_ports)	{ .first = 0 };
FIXTURE_VARIANT_ADD(coredump, by_thread_without_bitmap)	{ .first = 2 };

FIXTURE_SETUP(coredump)
{
	const char *reason = ioport_skip_reason();
	char pattern[256] = "";
	FILE *file;
	int i;

	if (reason)
		SKIP(return, "%s", reason);

	file = fopen("/proc/sys/kernel/core_pattern", "r");
	if (!file)
		SKIP(return, "no core dumps: kernel without COREDUMP");
	if (!fgets(pattern, sizeof(pattern), file))
		pattern[0] = '\0';
	fclose(file);
	if (strchr("|@\n", pattern[0]) || strchr(pattern, '/'))
		SKIP(return, "core_pattern leads elsewhere: %s", pattern);

	/* The mount is gone when the test ends or is killed */
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("ioport_regset", "/tmp", "tmpfs", 0, NULL) || chdir("/tmp"))
		SKIP(return, "no tmpfs for the core file: %s", strerror(errno));

	for (i = 0; i < THREADS; i++)
		self->threads[i] = all_threads[(variant->first + i) % THREADS];
}

/* As it is called in the parent, all processes share self */
FIXTURE_TEARDOWN_PARENT(coredump) {}

static int run_thread(void *arg)
{
	struct thread *thread = arg;
	struct ioport_map map;

	if (iopl(thread->level) || !do_calls(thread->calls, true, &map))
		_exit(KSFT_FAIL);
	__atomic_store_n(&thread->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (thread->tid != getpid())
		pause();

	return 0;
}

static void dump_core(struct thread *threads)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
			  CLONE_THREAD | CLONE_SYSVSEM;
	char *stack;
	int i;

	if (setrlimit(RLIMIT_CORE, &unlimited) || prctl(PR_SET_DUMPABLE, 1))
		_exit(KSFT_FAIL);

	for (i = 1; i < THREADS; i++) {
		stack = malloc(STACK_SIZE);
		if (!stack || clone(run_thread, stack + STACK_SIZE, flags,
				    &threads[i]) < 0)
			_exit(KSFT_FAIL);
		while (!__atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	run_thread(&threads[0]);
	raise(SIGSEGV);
	_exit(KSFT_FAIL);
}

/* The only file in the directory. Returns its contents */
static const uint8_t *read_core(struct __test_metadata *_metadata, size_t *size)
{
	struct stat st;
	glob_t files;
	void *core;
	int fd;

	ASSERT_EQ(0, glob("*", 0, NULL, &files));
	ASSERT_EQ(1U, files.gl_pathc);
	fd = open(files.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, fstat(fd, &st));
	core = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ASSERT_TRUE(core != MAP_FAILED);
	*size = st.st_size;

	return core;
}

#define NOTE_ALIGN(x)	(((x) + 3) & ~3UL)

/* The notes of a thread follow the NT_PRSTATUS with its number */
static void check_notes(struct __test_metadata *_metadata,
			struct thread *threads, const uint8_t *pos,
			const uint8_t *end)
{
	struct thread *thread = NULL, *last = threads + THREADS;
	const struct elf_prstatus *status;
	const ElfW(Nhdr) *note;
	struct ioport_map map;
	const uint8_t *desc;
	const char *name;
	int nr = 0;

	while (pos < end) {
		note = (const void *)pos;
		name = (const char *)(note + 1);
		desc = (const uint8_t *)name + NOTE_ALIGN(note->n_namesz);
		pos = desc + NOTE_ALIGN(note->n_descsz);
		ASSERT_TRUE(pos <= end);

		if (note->n_type == NT_PRSTATUS && !strcmp(name, "CORE")) {
			ASSERT_EQ(sizeof(*status), note->n_descsz);
			status = (const void *)desc;
			for (thread = threads; thread < last; thread++) {
				if (thread->tid == status->pr_pid)
					break;
			}
			ASSERT_TRUE(thread < last);
			nr++;
		}

		if (note->n_type != NT_386_IOPERM || strcmp(name, "LINUX"))
			continue;
		ASSERT_TRUE(thread && !thread->found);
		thread->found = true;
		do_calls(thread->calls, false, &map);
		EXPECT_TRUE(note->n_descsz == sizeof(map) &&
			    !memcmp(&map, desc, sizeof(map))) {
			TH_LOG("the ports of thread %zd", thread - threads);
		}
	}

	EXPECT_EQ(THREADS, nr);
	for (thread = threads; thread < last; thread++) {
		do_calls(thread->calls, false, &map);
		EXPECT_EQ(ioport_allows_any(&map), thread->found) {
			TH_LOG("the note of thread %zd", thread - threads);
		}
	}
}

TEST_F(coredump, notes)
{
	const ElfW(Phdr) *segment;
	const ElfW(Ehdr) *header;
	const uint8_t *core, *notes;
	int i, status, found = 0;
	size_t size;
	pid_t pid;

	pid = ioport_fork();
	ASSERT_LE(0, pid);
	if (!pid)
		dump_core(self->threads);
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV &&
		    WCOREDUMP(status));

	core = read_core(_metadata, &size);
	header = (const void *)core;
	ASSERT_LT(sizeof(*header), size);
	ASSERT_EQ(0, memcmp(header->e_ident, ELFMAG, SELFMAG));
	ASSERT_EQ(ET_CORE, header->e_type);

	segment = (const void *)(core + header->e_phoff);
	for (i = 0; i < header->e_phnum; i++) {
		if (segment[i].p_type != PT_NOTE)
			continue;
		ASSERT_LE(segment[i].p_offset + segment[i].p_filesz, size);
		notes = core + segment[i].p_offset;
		check_notes(_metadata, self->threads, notes, notes + segment[i].p_filesz);
		found++;
	}
	EXPECT_EQ(1, found);
}

TEST_HARNESS_MAIN
