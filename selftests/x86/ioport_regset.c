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
 * Ports are enabled, but never touched. core_pattern is not changed: where it
 * leads elsewhere than to the current directory, what depends on it is skipped.
 */
#include "kselftest_harness.h"
#include "ioport_helper.h"

#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/procfs.h>
#include <sys/resource.h>

/* Calls of ioperm(), the last of which disables if num is negative, and iopl() */
struct ports {
	struct {
		int	from, num;
	} calls[3];
	int		level;
};

/* Do the calls, in the task if @doing, and to @map */
static bool get_ports(const struct ports *ports, bool doing, struct ioport_map *map)
{
	unsigned int i, from, num;
	bool on;

	*map = ioport_none;
	for (i = 0; i < ARRAY_SIZE(ports->calls) && ports->calls[i].num; i++) {
		from = ports->calls[i].from;
		num = abs(ports->calls[i].num);
		on = ports->calls[i].num > 0;
		if (doing && ioperm(from, num, on))
			return false;
		ioport_set(map, from, num, on);
	}
	return !doing || !iopl(ports->level);
}

static const struct ports some_ports[] = {
	{ { { 0x80, 1 } }, 0 },
	/* iopl(3) neither hides the bitmap nor changes it */
	{ { { 0x80, 1 } }, 3 },
	{ { { 0, 1 } }, 0 },
	{ { { 63, 2 } }, 0 },
	{ { { 1023, 2 } }, 0 },
	{ { { 65535, 1 } }, 0 },
	{ { { 0, 65536 } }, 0 },
	{ { { 0, 65536 }, { 0x400, -0xf000 } }, 0 },
	{ { { 0x80, 1 }, { 65535, 1 }, { 0x80, -1 } }, 0 },
	{ { { 0x378, 3 }, { 0xc000, 0x1000 }, { 0xc800, -1 } }, 0 },
}, no_ports[] = {
	{ { { 0, 0 } }, 0 },
	{ { { 0x80, -1 } }, 0 },
	{ { { 0x80, 1 }, { 0x80, -1 } }, 0 },
	{ { { 0, 65536 }, { 0, -65536 } }, 0 },
	{ { { 0, 0 } }, 3 },
	{ { { 0x80, 1 }, { 0x80, -1 } }, 3 },
};

/* Go on in 32 bit code, which stops with SIGTRAP */
static void stop_in_32bit_code(void)
{
#ifdef __x86_64__
	/*
	 * With the code segment of 32 bit programs on a 64 bit kernel. With lret
	 * it would be simpler, but QEMU's TCG before 9.1 crashes the guest then.
	 */
	struct {
		uint32_t	ip;
		uint16_t	cs;
	} target = { .cs = 0x23 };
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (code == MAP_FAILED)
		_exit(KSFT_FAIL);
	/* INT3 */
	memset(code, 0xcc, 4096);
	target.ip = (uintptr_t)code;
	asm volatile ("ljmpl *%0" : : "m" (target) : "memory");
#else
	raise(SIGTRAP);
#endif
}

/* A tracee, and the ports that it should have */
static pid_t tracee;
static struct ioport_map map;

FIXTURE(regset) {};

FIXTURE_VARIANT(regset) {
	/* The unit of the register set of a tracee that stops with the signal */
	size_t	unit;
	int	signal;
};

#ifdef __x86_64__
FIXTURE_VARIANT_ADD(regset, code_64)	{ .unit = 8, .signal = SIGSTOP };
#endif
FIXTURE_VARIANT_ADD(regset, code_32)	{ .unit = 4, .signal = SIGTRAP };

/* Start a tracee which makes the calls and stops. Returns the signal */
static int start(const struct ports *ports, int signal)
{
	int status;

	tracee = ioport_fork();
	if (!tracee) {
		if (!get_ports(ports, true, &map))
			_exit(KSFT_FAIL);
		if (signal == SIGTRAP && !ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			stop_in_32bit_code();
		ioport_stop();
		_exit(KSFT_FAIL);
	}
	get_ports(ports, false, &map);
	status = ioport_wait(tracee);
	return WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
}

/* A read of @size bytes has to give @error, or the beginning of the map */
static void expect_regset(struct __test_metadata *_metadata, size_t size, int error)
{
	/* Room for more, to see what is written behind the register set */
	static uint8_t buf[IOPORT_MAP_BYTES + 4096];
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	const uint8_t unused = 0x5a;
	size_t len = 0, i;
	int ret;

	memset(buf, unused, sizeof(buf));
	ret = ptrace(PTRACE_GETREGSET, tracee, (void *)NT_386_IOPERM, &iov);
	EXPECT_EQ(error, ret ? errno : 0)
		TH_LOG("size %zu", size);
	if (!error) {
		len = size < sizeof(map) ? size : sizeof(map);
		EXPECT_TRUE(iov.iov_len == len && !memcmp(&map, buf, len))
			TH_LOG("size %zu", size);
	}
	for (i = len; i < sizeof(buf) && buf[i] == unused; i++)
		;
	EXPECT_EQ(sizeof(buf), i)
		TH_LOG("size %zu: something was written behind the end", size);
}

FIXTURE_SETUP(regset)
{
	const char *reason = ioport_setup_tracer();
	struct user_regs_struct regs;
	struct iovec iov = { .iov_base = &regs, .iov_len = sizeof(regs) };

	if (reason)
		SKIP(return, "%s", reason);
	if (start(&no_ports[0], variant->signal) != variant->signal)
		SKIP(return, "32 bit code cannot be executed");

	/* As many registers of 4 or 8 bytes as the code has */
	ASSERT_EQ(0, ptrace(PTRACE_GETREGSET, tracee, (void *)NT_PRSTATUS, &iov));
	ioport_end(tracee);
	if (iov.iov_len != (variant->unit == 8 ? 27 * 8 : 17 * 4))
		SKIP(return, "kernel without IA32_EMULATION");
}

FIXTURE_TEARDOWN(regset) {}

TEST_F(regset, no_bitmap)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(no_ports); i++) {
		ASSERT_LT(0, start(&no_ports[i], variant->signal));
		expect_regset(_metadata, 0, ENXIO);
		expect_regset(_metadata, 8, ENXIO);
		expect_regset(_metadata, IOPORT_MAP_BYTES, ENXIO);
		ioport_end(tracee);
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
	struct iovec nowhere = { .iov_base = NULL, .iov_len = IOPORT_MAP_BYTES };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(some_ports); i++) {
		ASSERT_LT(0, start(&some_ports[i], variant->signal));
		for (j = 0; j < ARRAY_SIZE(good); j++)
			expect_regset(_metadata, good[j], 0);
		for (j = 0; j < ARRAY_SIZE(bad); j++)
			expect_regset(_metadata, bad[j], EINVAL);
		EXPECT_EQ(-1, ptrace(PTRACE_GETREGSET, tracee, (void *)NT_386_IOPERM, &nowhere));
		EXPECT_EQ(EFAULT, errno);
		ioport_end(tracee);
	}
}

/* A tracer can neither enable nor disable a port */
TEST_F(regset, read_only)
{
	struct ioport_map wish = { };
	struct iovec iov = { .iov_base = &wish, .iov_len = sizeof(wish) };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		ASSERT_LT(0, start(i ? &some_ports[0] : &no_ports[0], variant->signal));
		EXPECT_EQ(-1, ptrace(PTRACE_SETREGSET, tracee, (void *)NT_386_IOPERM, &iov));
		EXPECT_TRUE(!i || errno == EOPNOTSUPP);
		expect_regset(_metadata, IOPORT_MAP_BYTES, i ? 0 : ENXIO);
		ioport_end(tracee);
	}
}

/*
 * Core dumps of several threads, each with its own ports
 */
#define THREADS			8

static const struct ports thread_ports[THREADS] = {
	{ { { 0x80, 1 }, { 65535, 1 } }, 0 },
	{ { { 0x378, 3 }, { 0xd000, 600 }, { 0xd100, -1 } }, 0 },
	/* These have no bitmap */
	{ { { 0x80, 1 }, { 0x80, -1 } }, 0 },
	{ { { 0, 0 } }, 3 },
	/* One low port is enough for the whole note */
	{ { { 0, 1 } }, 0 }, { { { 0x1e, 1 } }, 0 },
	{ { { 0x2e, 1 } }, 0 }, { { { 62, 1 } }, 0 },
};

FIXTURE(coredump) {
	/* Written by the process that dumps core: 0 until the thread has its ports */
	pid_t	tid[THREADS];
};

FIXTURE_VARIANT(coredump) {
	/* The main thread, which dumps core */
	int	first;
};

FIXTURE_VARIANT_ADD(coredump, by_thread_with_ports)	{ .first = 0 };
FIXTURE_VARIANT_ADD(coredump, by_thread_without_bitmap)	{ .first = 2 };

FIXTURE_SETUP(coredump)
{
	const char *reason = ioport_setup();
	FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");
	char pattern[256] = "|";

	if (reason)
		SKIP(return, "%s", reason);
	if (!file || !fgets(pattern, sizeof(pattern), file) || strchr("|@\n", pattern[0]) ||
	    strchr(pattern, '/'))
		SKIP(return, "no core dumps, or core_pattern leads elsewhere: %s", pattern);

	/* The mount is gone when the test ends or is killed */
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("ioport_regset", "/tmp", "tmpfs", 0, NULL) || chdir("/tmp"))
		SKIP(return, "no tmpfs for the core file: %s", strerror(errno));
}

/* As it is called in the parent, all processes share self */
FIXTURE_TEARDOWN_PARENT(coredump) {}

static pid_t *tids;

static void *run_thread(void *ports)
{
	struct ioport_map unused;

	if (!get_ports(ports, true, &unused))
		_exit(KSFT_FAIL);
	ioport_store(tids[(const struct ports *)ports - thread_ports], syscall(SYS_gettid));
	while (syscall(SYS_gettid) != getpid())
		pause();
	return NULL;
}

static void dump_core(int first)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	pthread_t id;
	int i;

	if (setrlimit(RLIMIT_CORE, &unlimited) || prctl(PR_SET_DUMPABLE, 1))
		_exit(KSFT_FAIL);
	for (i = 0; i < THREADS; i++) {
		if (i != first && pthread_create(&id, NULL, run_thread, (void *)&thread_ports[i]))
			_exit(KSFT_FAIL);
		while (i != first && !ioport_load(tids[i]))
			sched_yield();
	}
	run_thread((void *)&thread_ports[first]);
	raise(SIGSEGV);
	_exit(KSFT_FAIL);
}

#define NOTE_ALIGN(x)	(((x) + 3) & ~3UL)

/* The notes of a thread follow the NT_PRSTATUS with its number */
static void check_notes(struct __test_metadata *_metadata, const uint8_t *pos,
			const uint8_t *end)
{
	int i = -1, nr = 0, found[THREADS] = { };
	const struct elf_prstatus *status;
	const uint8_t *desc;
	const char *name;

	while (pos < end) {
		const ElfW(Nhdr) * note = (const void *)pos;

		name = (const char *)(note + 1);
		desc = (const uint8_t *)name + NOTE_ALIGN(note->n_namesz);
		pos = desc + NOTE_ALIGN(note->n_descsz);
		ASSERT_TRUE(pos <= end);

		if (note->n_type == NT_PRSTATUS && !strcmp(name, "CORE")) {
			ASSERT_EQ(sizeof(*status), note->n_descsz);
			status = (const void *)desc;
			for (i = 0; i < THREADS && tids[i] != status->pr_pid; i++)
				;
			nr++;
		}
		if (note->n_type == NT_386_IOPERM && !strcmp(name, "LINUX")) {
			ASSERT_TRUE(i >= 0 && i < THREADS);
			found[i]++;
			get_ports(&thread_ports[i], false, &map);
			EXPECT_TRUE(note->n_descsz == sizeof(map) &&
				    !memcmp(&map, desc, sizeof(map)))
				TH_LOG("the ports of thread %d", i);
		}
	}

	EXPECT_EQ(THREADS, nr);
	for (i = 0; i < THREADS; i++) {
		get_ports(&thread_ports[i], false, &map);
		EXPECT_EQ(!!memcmp(&map, &ioport_none, sizeof(map)), found[i])
			TH_LOG("the note of thread %d", i);
	}
}

TEST_F(coredump, notes)
{
	static uint8_t core[1 << 20];
	const ElfW(Ehdr) * header;
	const ElfW(Phdr) * segment;
	int i, fd, status, nr = 0;
	glob_t files;
	pid_t pid;

	tids = self->tid;
	pid = ioport_fork();
	ASSERT_LE(0, pid);
	if (!pid)
		dump_core(variant->first);
	status = ioport_wait(pid);
	ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && WCOREDUMP(status));

	/* The only file in the directory, which begins with the notes */
	ASSERT_EQ(0, glob("*", 0, NULL, &files));
	ASSERT_EQ(1U, files.gl_pathc);
	fd = open(files.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	ASSERT_LT((ssize_t)sizeof(*header), read(fd, core, sizeof(core)));
	header = (const void *)core;
	ASSERT_EQ(0, memcmp(header->e_ident, ELFMAG, SELFMAG));
	ASSERT_EQ(ET_CORE, header->e_type);

	segment = (const void *)(core + header->e_phoff);
	for (i = 0; i < header->e_phnum; i++, segment++) {
		if (segment->p_type != PT_NOTE)
			continue;
		ASSERT_LE(segment->p_offset + segment->p_filesz, sizeof(core));
		check_notes(_metadata, core + segment->p_offset,
			    core + segment->p_offset + segment->p_filesz);
		nr++;
	}
	EXPECT_EQ(1, nr);
}

int main(int argc, char **argv)
{
	ioport_init(&argc, argv);
	return test_harness_run(argc, argv);
}
