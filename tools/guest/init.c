// SPDX-License-Identifier: GPL-2.0-only
/*
 * init of a guest without user land: runs the commands of /tests, and writes
 * what they print, their exit status and how many seconds they took to the
 * console. tiny.py makes the initramfs.
 *
 * A line of /tests is: PROGRAM [ARGUMENT]...
 * "wait SECONDS" lets that time pass. "show PATH" writes what is in the file,
 * as if a program of that path had printed it.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* tiny.py refuses more. */
#define MAX_WORDS	256
#define MAX_TESTS	64

static void mount_at(const char *type, const char *place)
{
	mkdir(place, 0755);
	if (mount(type, place, type, 0, NULL))
		printf("@@ no %s: %s\n", type, strerror(errno));
}

/* The host ends a guest that takes too long: it knows how busy it is. */
static int wait_for(pid_t child)
{
	int status;

	/* init gets the orphans of all others. */
	while (waitpid(-1, &status, 0) != child)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
				   128 + WTERMSIG(status);
}

static int show(const char *path)
{
	FILE *file = fopen(path, "r");
	int ch;

	if (!file)
		return errno;
	while ((ch = getc(file)) != EOF)
		putchar(ch);
	fclose(file);
	return 0;
}

static int start(char **words)
{
	pid_t child = fork();

	if (!child) {
		execv(words[0], words);
		printf("@@ exec: %s\n", strerror(errno));
		fflush(stdout);
		_exit(127);
	}
	return wait_for(child);
}

static void run(char *line)
{
	char *words[MAX_WORDS + 2] = { NULL };
	time_t begun = time(NULL);
	int count = 0, status;
	const char *name;
	bool shown;

	while (count <= MAX_WORDS &&
	       (words[count] = strtok(count ? NULL : line, " ")))
		count++;
	if (!strcmp(words[0], "wait")) {
		sleep(atoi(words[1]));
		return;
	}
	shown = !strcmp(words[0], "show");
	name = words[shown];
	printf("@@ begin %s\n", name);
	fflush(stdout);
	status = shown ? show(name) : start(words);
	printf("\n@@ end %s %d %d\n", name, status, (int)(time(NULL) - begun));
	fflush(stdout);
}

int main(void)
{
	char *lines[MAX_TESTS] = { NULL };
	size_t size = 0;
	int count = 0;
	FILE *list;

	mount_at("devtmpfs", "/dev");
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	mount_at("cgroup2", "/sys/fs/cgroup");
	mount_at("debugfs", "/sys/kernel/debug");
	mount_at("securityfs", "/sys/kernel/security");
	mount_at("tmpfs", "/tmp");
	list = fopen("/tests", "r");
	/* Before the first fork(): a child shares the position in the file. */
	while (list && count < MAX_TESTS &&
	       getline(&lines[count], &size, list) > 0) {
		lines[count][strcspn(lines[count], "\n")] = 0;
		count++;
		size = 0;
	}
	for (int i = 0; i < count; i++)
		run(lines[i]);
	printf("@@ done %d\n", count);
	fflush(stdout);
	sync();
	/* With QEMU's -no-reboot, the guest is over. */
	reboot(RB_AUTOBOOT);
	pause();
}
