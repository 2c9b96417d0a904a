// SPDX-License-Identifier: GPL-2.0-only
/*
 * init of a guest without user land: mounts what tests need, runs the
 * commands of /tests, and writes what they print, their exit status and how
 * many seconds they took to the console. scripts/tinyguest.py makes the
 * initramfs and reads the console.
 *
 * A line of /tests is: SECONDS PROGRAM [ARGUMENT]...
 * With "wait" for the program: let SECONDS pass. With "show" and a path: write
 * what is in that file, as if a program of that path had printed it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* scripts/tinyguest.py refuses more. */
#define MAX_WORDS	256
#define MAX_TESTS	64

static void mount_at(const char *type, const char *place)
{
	mkdir(place, 0755);
	if (mount(type, place, type, 0, NULL))
		printf("@@ no %s: %s\n", type, strerror(errno));
}

/* A test that never ends must not take the results of the others along. */
static int wait_for(pid_t child, unsigned int seconds)
{
	struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	time_t end = time(NULL) + seconds;
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid == child)
			break;
		/* init gets the orphans of all others. */
		if (pid > 0)
			continue;
		if (pid < 0)
			return -1;
		if (time(NULL) > end) {
			kill(-child, SIGKILL);
			waitpid(child, &status, 0);
			return 124;
		}
		nanosleep(&pause, NULL);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) :
				   128 + WTERMSIG(status);
}

static void show(const char *path)
{
	FILE *file = fopen(path, "r");
	int error = file ? 0 : errno;
	int ch;

	printf("@@ begin %s\n", path);
	while (file && (ch = getc(file)) != EOF)
		putchar(ch);
	if (file)
		fclose(file);
	printf("\n@@ end %s %d 0\n", path, error);
	fflush(stdout);
}

static void run(char *line)
{
	char *words[MAX_WORDS + 1] = { NULL };
	unsigned int seconds;
	time_t start;
	int count = 0;
	int status;
	pid_t child;

	for (char *word = strtok(line, " "); word && count < MAX_WORDS;
	     word = strtok(NULL, " "))
		words[count++] = word;
	if (count < 2)
		return;
	seconds = atoi(words[0]);
	if (!strcmp(words[1], "wait")) {
		sleep(seconds);
		return;
	}
	if (count == 3 && !strcmp(words[1], "show")) {
		show(words[2]);
		return;
	}
	printf("@@ begin %s\n", words[1]);
	fflush(stdout);
	start = time(NULL);
	child = fork();
	if (!child) {
		setpgid(0, 0);
		execv(words[1], words + 1);
		printf("@@ exec: %s\n", strerror(errno));
		fflush(stdout);
		_exit(127);
	}
	setpgid(child, child);
	status = wait_for(child, seconds);
	printf("\n@@ end %s %d %d\n", words[1], status,
	       (int)(time(NULL) - start));
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
