// SPDX-License-Identifier: GPL-2.0
/*
 * ioport_regset.c - the I/O bitmap as debuggers and core dumps see it
 *
 * PTRACE_GETREGSET with NT_386_IOPERM reads the I/O bitmap of a tracee, and a
 * core dump has a note of that type for each thread which has a bitmap. The
 * format is that of the hardware: 8192 bytes, and a bit that is set disables
 * the port. It does not depend on how much of it the kernel keeps, nor on
 * where the highest enabled port is: what is behind that is all ones. A task
 * that has no bitmap has no such register set. That iopl(3) enables all ports
 * is not seen in there.
 *
 * What is expected is computed from the calls of ioperm(). A 64 bit tracee has
 * a register set in units of 8 bytes, one that executes 32 bit code, be it on
 * its own or as a part of a 64 bit program, has one in units of 4.
 *
 * Ports are enabled here but never touched. core_pattern is not changed: where
 * it leads elsewhere than to the current directory, what depends on it is
 * skipped. Core files go to a tmpfs in a mount namespace of the test's own,
 * which is gone when the test ends or is killed.
 *
 * The sequence of random calls begins with a seed that is printed, and that
 * IOPORT_SEED in the environment sets.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

/* The unit of the register set of a program like this one */
#define UNIT			sizeof(long)

#define CANARY			0x5a
#define RANDOM_CALLS		60
#define MAX_CALLS		6

/* A call of ioperm(), num 0 ends a list. A negative num revokes. */
struct call {
	int	from;
	int	num;
};

static const struct call models[][MAX_CALLS] = {
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
	{ { 0x378, 3 }, { 0x70, 2 }, { 0xcf8, 8 }, { 0xc000, 0x1000 },
	  { 0xc800, -1 } },
	{ { 512, 512 }, { 1536, 512 }, { 3072, 1 } },
};

static int do_calls(const struct call *calls)
{
	int i;

	for (i = 0; i < MAX_CALLS && calls[i].num; i++) {
		if (ioperm(calls[i].from, abs(calls[i].num), calls[i].num > 0))
			return -1;
	}
	return 0;
}

static void do_model(const struct call *calls, struct ioport_map *map)
{
	int i;

	ioport_clear_all(map);
	for (i = 0; i < MAX_CALLS && calls[i].num; i++)
		ioport_set(map, calls[i].from, abs(calls[i].num),
			   calls[i].num > 0);
}

static bool has_port(const struct ioport_map *map)
{
	unsigned int i;

	for (i = 0; i < sizeof(map->deny); i++) {
		if (map->deny[i] != 0xff)
			return true;
	}
	return false;
}

/* A tracee which has made the calls and is stopped. Not positive if not. */
static pid_t start_tracee(const struct call *calls, int level)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || iopl(level) ||
		    do_calls(calls))
			_exit(KSFT_FAIL);
		raise(SIGSTOP);
		_exit(KSFT_PASS);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return -1;
	return pid;
}

static void end_tracee(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Room for more than the register set, to see what is written behind it */
static uint8_t buf[IOPORT_MAP_BYTES + 4096];

/* Returns 0 or a negative error. *@len becomes how much there was. */
static int get_regset(pid_t pid, int type, size_t *len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = *len };
	int ret;

	memset(buf, CANARY, sizeof(buf));
	ret = ptrace(PTRACE_GETREGSET, pid, (void *)(long)type, &iov);
	*len = iov.iov_len;
	return ret ? -errno : 0;
}

static bool untouched_from(size_t from)
{
	for (; from < sizeof(buf); from++) {
		if (buf[from] != CANARY)
			return false;
	}
	return true;
}

static const char *missing(void)
{
	const char *reason = ioport_skip_reason();

	if (!reason) {
		/* Whoever started this may have had ports. */
		if (ioperm(0, IOPORT_NR, 0) || iopl(0))
			reason = "ports cannot be given back";
	}
	return reason;
}

FIXTURE(regset) {
};

FIXTURE_SETUP(regset)
{
	const char *reason = missing();

	if (reason)
		SKIP(return, "%s", reason);
}

FIXTURE_TEARDOWN(regset)
{
}

TEST_F(regset, no_bitmap)
{
	static const struct {
		struct call	calls[MAX_CALLS];
		int		level;
	} nothing[] = {
		{ { }, 0 },
		{ { { 0x80, 1 }, { 0x80, -1 } }, 0 },
		{ { { 0, 65536 }, { 0, -65536 } }, 0 },
		{ { { 0x80, -1 } }, 0 },
		{ { }, 3 },
	};
	static const size_t sizes[] = { 0, 8, 8192 };
	unsigned int i, j;
	size_t len;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(nothing); i++) {
		pid = start_tracee(nothing[i].calls, nothing[i].level);
		ASSERT_GT(pid, 0);
		for (j = 0; j < ARRAY_SIZE(sizes); j++) {
			len = sizes[j];
			EXPECT_EQ(-ENXIO, get_regset(pid, NT_386_IOPERM, &len));
			EXPECT_TRUE(untouched_from(0));
		}
		end_tracee(pid);
	}
}

TEST_F(regset, all_models)
{
	struct ioport_map map;
	unsigned int i;
	size_t len;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(models); i++) {
		pid = start_tracee(models[i], 0);
		ASSERT_GT(pid, 0);
		do_model(models[i], &map);
		len = sizeof(map);
		EXPECT_EQ(0, get_regset(pid, NT_386_IOPERM, &len));
		EXPECT_EQ(sizeof(map), len);
		EXPECT_EQ(0, memcmp(map.deny, buf, sizeof(map)))
			TH_LOG("model %u", i);
		EXPECT_TRUE(untouched_from(sizeof(map)));
		end_tracee(pid);
	}
}

/* iopl(3) neither hides the bitmap nor changes it. */
TEST_F(regset, iopl_is_not_in_it)
{
	struct ioport_map map;
	size_t len = sizeof(map);
	pid_t pid;

	pid = start_tracee(models[0], 3);
	ASSERT_GT(pid, 0);
	do_model(models[0], &map);
	EXPECT_EQ(0, get_regset(pid, NT_386_IOPERM, &len));
	EXPECT_EQ(0, memcmp(map.deny, buf, sizeof(map)));
	end_tracee(pid);
}

/* Who asks for less gets the beginning, and nothing is written behind that. */
static void check_sizes(struct __test_metadata *_metadata, pid_t pid,
			const struct ioport_map *map, size_t unit)
{
	const size_t good[] = {
		0, unit, 2 * unit, 16, 64, 128, 4096, 8192 - unit, 8192,
		8192 + unit, sizeof(buf),
	};
	const size_t bad[] = {
		1, unit - 1, unit + 1, unit / 2, 8191, 8193, 8192 + unit / 2,
	};
	size_t len, want;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		len = good[i];
		want = len < sizeof(*map) ? len : sizeof(*map);
		EXPECT_EQ(0, get_regset(pid, NT_386_IOPERM, &len))
			TH_LOG("size %zu", good[i]);
		EXPECT_EQ(want, len);
		EXPECT_EQ(0, memcmp(map->deny, buf, want))
			TH_LOG("size %zu", good[i]);
		EXPECT_TRUE(untouched_from(want))
			TH_LOG("size %zu", good[i]);
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		len = bad[i];
		EXPECT_EQ(-EINVAL, get_regset(pid, NT_386_IOPERM, &len))
			TH_LOG("size %zu", bad[i]);
		EXPECT_TRUE(untouched_from(0));
	}
}

TEST_F(regset, sizes)
{
	struct ioport_map map;
	unsigned int i;
	pid_t pid;

	/* Those that end early, in the middle of a unit, and at the very end */
	for (i = 0; i < ARRAY_SIZE(models); i += 4) {
		pid = start_tracee(models[i], 0);
		ASSERT_GT(pid, 0);
		do_model(models[i], &map);
		check_sizes(_metadata, pid, &map, UNIT);
		end_tracee(pid);
	}
}

TEST_F(regset, bad_address)
{
	struct iovec iov = { .iov_base = NULL, .iov_len = IOPORT_MAP_BYTES };
	pid_t pid;

	pid = start_tracee(models[0], 0);
	ASSERT_GT(pid, 0);
	EXPECT_EQ(-1, ptrace(PTRACE_GETREGSET, pid, (void *)NT_386_IOPERM,
			     &iov));
	EXPECT_EQ(EFAULT, errno);
	end_tracee(pid);
}

/* A tracer can neither grant nor revoke. */
TEST_F(regset, read_only)
{
	static const struct call none[MAX_CALLS];
	struct ioport_map map, wish;
	struct iovec iov = { .iov_base = &wish, .iov_len = sizeof(wish) };
	size_t len = sizeof(map);
	pid_t pid;

	memset(&wish, 0, sizeof(wish));

	pid = start_tracee(models[0], 0);
	ASSERT_GT(pid, 0);
	do_model(models[0], &map);
	EXPECT_EQ(-1, ptrace(PTRACE_SETREGSET, pid, (void *)NT_386_IOPERM,
			     &iov));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(0, get_regset(pid, NT_386_IOPERM, &len));
	EXPECT_EQ(0, memcmp(map.deny, buf, sizeof(map)));
	end_tracee(pid);

	pid = start_tracee(none, 0);
	ASSERT_GT(pid, 0);
	EXPECT_EQ(-1, ptrace(PTRACE_SETREGSET, pid, (void *)NT_386_IOPERM,
			     &iov));
	len = sizeof(map);
	EXPECT_EQ(-ENXIO, get_regset(pid, NT_386_IOPERM, &len));
	end_tracee(pid);
}

static uint32_t rnd_state;

static uint32_t rnd(uint32_t limit)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 17;
	rnd_state ^= rnd_state << 5;
	return rnd_state % limit;
}

static void random_call(struct call *call)
{
	int max = rnd(4) ? 600 : IOPORT_NR;

	call->from = rnd(IOPORT_NR);
	call->num = 1 + rnd(max);
	if (call->num > IOPORT_NR - call->from)
		call->num = IOPORT_NR - call->from;
	if (rnd(3) == 0)
		call->num = -call->num;
}

TEST_F(regset, random_calls)
{
	const char *env = getenv("IOPORT_SEED");
	uint32_t seed = env ? strtoul(env, NULL, 0) : (uint32_t)time(NULL);
	struct ioport_map map;
	struct call call[2] = { };
	pid_t pid;
	int i, ret, status;
	bool any;
	size_t len;

	rnd_state = seed | 1;
	TH_LOG("seed %u", rnd_state);

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(KSFT_FAIL);
		for (i = 0; i < RANDOM_CALLS; i++) {
			random_call(call);
			if (ioperm(call->from, abs(call->num), call->num > 0))
				_exit(KSFT_FAIL);
			raise(SIGSTOP);
		}
		_exit(KSFT_PASS);
	}

	ioport_clear_all(&map);
	for (i = 0; i < RANDOM_CALLS; i++) {
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFSTOPPED(status));
		random_call(call);
		ioport_set(&map, call->from, abs(call->num), call->num > 0);
		any = has_port(&map);

		len = sizeof(map);
		ret = get_regset(pid, NT_386_IOPERM, &len);
		ASSERT_EQ(any ? 0 : -ENXIO, ret)
			TH_LOG("call %d", i);
		if (any)
			ASSERT_EQ(0, memcmp(map.deny, buf, sizeof(map)))
				TH_LOG("call %d", i);
		ASSERT_EQ(0, ptrace(PTRACE_CONT, pid, NULL, NULL));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

#ifdef __x86_64__
/* The code segment of 32 bit programs on a 64 bit kernel */
#define USER32_CS		0x23

#define INT3			0xcc

/* What NT_PRSTATUS of a 32 bit program has */
#define REGS32_SIZE		68

/*
 * A task is looked at as what it executes: go on in 32 bit code. With lret it
 * would be simpler, but QEMU's TCG before 9.1 crashes the guest then.
 */
static void __noreturn stop_in_32bit_code(void)
{
	struct {
		uint32_t	ip;
		uint16_t	cs;
	} target = { .cs = USER32_CS };
	uint8_t *code;

	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (code == MAP_FAILED)
		_exit(KSFT_FAIL);
	memset(code, INT3, 4096);
	target.ip = (uintptr_t)code;
	asm volatile ("ljmpl *%0" : : "m" (target) : "memory");
	__builtin_unreachable();
}

TEST_F(regset, compat_view)
{
	struct ioport_map map;
	unsigned int i;
	size_t len;
	int status;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(models); i += 3) {
		pid = fork();
		ASSERT_GE(pid, 0);
		if (!pid) {
			if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) ||
			    do_calls(models[i]))
				_exit(KSFT_FAIL);
			stop_in_32bit_code();
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFSTOPPED(status))
			TH_LOG("status 0x%x", status);
		if (WSTOPSIG(status) != SIGTRAP)
			SKIP(end_tracee(pid); return,
			     "32 bit code cannot be executed");

		len = sizeof(buf);
		ASSERT_EQ(0, get_regset(pid, NT_PRSTATUS, &len));
		if (len != REGS32_SIZE)
			SKIP(end_tracee(pid); return,
			     "kernel without IA32_EMULATION");

		do_model(models[i], &map);
		check_sizes(_metadata, pid, &map, sizeof(uint32_t));
		end_tracee(pid);
	}
}

TEST_F(regset, compat_view_no_bitmap)
{
	size_t len = 8192;
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(KSFT_FAIL);
		stop_in_32bit_code();
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
	if (WSTOPSIG(status) != SIGTRAP)
		SKIP(end_tracee(pid); return, "32 bit code cannot be executed");
	EXPECT_EQ(-ENXIO, get_regset(pid, NT_386_IOPERM, &len));
	EXPECT_TRUE(untouched_from(0));
	end_tracee(pid);
}
#endif /* __x86_64__ */

/*
 * Core dumps: the main thread and others dump core, each with its own ports
 */

#define THREADS			4
#define STACK_SIZE		16384

struct dump {
	struct call	calls[MAX_CALLS];
	int		level;
	pid_t		tid;
	uint32_t	ready;
};

static const struct dump dump_template[THREADS] = {
	{ .calls = { { 0x80, 1 }, { 65535, 1 } } },
	{ .calls = { { 0x378, 3 }, { 0xd000, 600 }, { 0xd100, -1 } } },
	/* These have none. */
	{ .calls = { { 0x80, 1 }, { 0x80, -1 } } },
	{ .level = 3 },
};

FIXTURE(coredump) {
	/* Shared with the process that dumps core */
	struct dump	*dump;
};

FIXTURE_SETUP(coredump)
{
	const char *reason = missing();
	char pattern[256] = "";
	ssize_t len;
	int fd;

	if (reason)
		SKIP(return, "%s", reason);

	fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		SKIP(return, "no core dumps: kernel without COREDUMP");
	len = read(fd, pattern, sizeof(pattern) - 1);
	close(fd);
	if (len < 1 || pattern[0] == '|' || pattern[0] == '@' ||
	    strchr(pattern, '/') || pattern[0] == '\n')
		SKIP(return, "core_pattern leads elsewhere: %.*s",
		     (int)strcspn(pattern, "\n"), pattern);

	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("ioport_regset", "/tmp", "tmpfs", 0, NULL) || chdir("/tmp"))
		SKIP(return, "no tmpfs for the core file: %s",
		     strerror(errno));

	self->dump = mmap(NULL, sizeof(dump_template), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(self->dump != MAP_FAILED);
	memcpy(self->dump, dump_template, sizeof(dump_template));
}

FIXTURE_TEARDOWN(coredump)
{
}

static int dump_thread(void *arg)
{
	struct dump *dump = arg;

	if (!iopl(dump->level) && !do_calls(dump->calls)) {
		dump->tid = syscall(SYS_gettid);
		__atomic_store_n(&dump->ready, 1, __ATOMIC_RELEASE);
	}
	for (;;)
		pause();
	return 0;
}

/* In a child: begin threads as they are described, and dump core. */
static void dump_core(struct dump *dump, int nr)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	char *stack;
	int i, fd;

	/* What is in memory is of no interest. */
	fd = open("/proc/self/coredump_filter", O_WRONLY);
	if (fd >= 0 && write(fd, "0", 1) < 0)
		ksft_perror("coredump_filter");
	close(fd);

	if (setrlimit(RLIMIT_CORE, &unlimited) || prctl(PR_SET_DUMPABLE, 1))
		_exit(KSFT_FAIL);

	for (i = 1; i < nr; i++) {
		stack = malloc(STACK_SIZE);
		if (!stack ||
		    clone(dump_thread, stack + STACK_SIZE, CLONE_VM | CLONE_FS |
			  CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM, &dump[i]) < 0)
			_exit(KSFT_FAIL);
		while (!__atomic_load_n(&dump[i].ready, __ATOMIC_ACQUIRE))
			sched_yield();
	}

	dump->tid = getpid();
	if (iopl(dump->level) || do_calls(dump->calls))
		_exit(KSFT_FAIL);
	clearhandler(SIGSEGV);
	raise(SIGSEGV);
	_exit(KSFT_FAIL);
}

/* The only file in the directory. Returns its contents. */
static void *read_core(size_t *size)
{
	struct dirent *entry;
	struct stat st;
	void *core = NULL;
	DIR *dir;
	int fd;

	dir = opendir(".");
	if (!dir)
		return NULL;
	while (!core && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		fd = open(entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size)
			core = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE,
				    fd, 0);
		close(fd);
		if (core == MAP_FAILED)
			core = NULL;
		if (core)
			*size = st.st_size;
	}
	closedir(dir);
	return core;
}

/* Of an ELF file of the class that this program has */
struct core_header {
	uint8_t		ident[EI_NIDENT];
	uint16_t	type;
	uint16_t	machine;
	uint32_t	version;
	unsigned long	entry;
	unsigned long	phoff;
	unsigned long	shoff;
	uint32_t	flags;
	uint16_t	ehsize;
	uint16_t	phentsize;
	uint16_t	phnum;
};

struct core_segment {
	uint32_t	type;
#ifdef __x86_64__
	uint32_t	flags;
#endif
	unsigned long	offset;
	unsigned long	vaddr;
	unsigned long	paddr;
	unsigned long	filesz;
	unsigned long	memsz;
#ifndef __x86_64__
	uint32_t	flags;
#endif
	unsigned long	align;
};

struct core_note {
	uint32_t	namesz;
	uint32_t	descsz;
	uint32_t	type;
};

#define NOTE_ALIGN(x)	(((x) + 3) & ~3UL)

/*
 * Compare the notes of the core file with what the threads had. The notes of a
 * thread follow the NT_PRSTATUS with its number.
 */
static void check_notes(struct __test_metadata *_metadata, struct dump *dump,
			int nr, const uint8_t *notes, size_t size)
{
	const struct elf_prstatus *status;
	struct dump *thread = NULL;
	bool seen[THREADS] = { };
	const struct core_note *note;
	struct ioport_map map;
	const uint8_t *desc;
	const char *name;
	int threads = 0;
	size_t pos = 0;
	int i;

	while (pos + sizeof(*note) <= size) {
		note = (const void *)(notes + pos);
		name = (const char *)(note + 1);
		desc = (const uint8_t *)name + NOTE_ALIGN(note->namesz);
		pos += sizeof(*note) + NOTE_ALIGN(note->namesz) +
		       NOTE_ALIGN(note->descsz);
		ASSERT_LE(pos, size);

		if (note->type == NT_PRSTATUS && !strcmp(name, "CORE")) {
			ASSERT_EQ(sizeof(*status), note->descsz);
			status = (const void *)desc;
			thread = NULL;
			for (i = 0; i < nr; i++) {
				if (dump[i].tid == status->pr_pid)
					thread = &dump[i];
			}
			ASSERT_TRUE(!!thread);
			threads++;
		}
		if (note->type != NT_386_IOPERM || strcmp(name, "LINUX"))
			continue;

		ASSERT_TRUE(!!thread);
		i = thread - dump;
		EXPECT_FALSE(seen[i]);
		seen[i] = true;
		do_model(thread->calls, &map);
		ASSERT_EQ(sizeof(map), note->descsz);
		EXPECT_EQ(0, memcmp(map.deny, desc, sizeof(map)))
			TH_LOG("the ports of thread %d", i);
	}

	EXPECT_EQ(nr, threads);
	for (i = 0; i < nr; i++) {
		do_model(dump[i].calls, &map);
		EXPECT_EQ(has_port(&map), seen[i])
			TH_LOG("the note of thread %d", i);
	}
}

static void core_matches(struct __test_metadata *_metadata, struct dump *dump,
			 int nr)
{
	const struct core_header *header;
	const struct core_segment *segment;
	int i, status, segments = 0;
	size_t size;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		dump_core(dump, nr);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(SIGSEGV, WTERMSIG(status));
	ASSERT_TRUE(WCOREDUMP(status));

	header = read_core(&size);
	ASSERT_TRUE(!!header);
	ASSERT_GT(size, sizeof(*header));
	ASSERT_EQ(0, memcmp(header->ident, ELFMAG, SELFMAG));
	ASSERT_EQ(UNIT == 8 ? ELFCLASS64 : ELFCLASS32,
		  header->ident[EI_CLASS]);
	ASSERT_EQ(ET_CORE, header->type);

	segment = (const void *)((const uint8_t *)header + header->phoff);
	for (i = 0; i < header->phnum; i++) {
		if (segment[i].type != PT_NOTE)
			continue;
		ASSERT_LE(segment[i].offset + segment[i].filesz, size);
		check_notes(_metadata, dump, nr,
			    (const uint8_t *)header + segment[i].offset,
			    segment[i].filesz);
		segments++;
	}
	EXPECT_EQ(1, segments);
}

TEST_F(coredump, one_thread)
{
	core_matches(_metadata, self->dump, 1);
}

TEST_F(coredump, no_bitmap)
{
	core_matches(_metadata, self->dump + 2, 1);
}

TEST_F(coredump, iopl_only)
{
	core_matches(_metadata, self->dump + 3, 1);
}

TEST_F(coredump, threads_with_different_ports)
{
	core_matches(_metadata, self->dump, THREADS);
}

int main(int argc, char **argv)
{
	return ioport_harness_run(argc, argv);
}
