// SPDX-License-Identifier: GPL-2.0
/*
 * How often KVM's directed yield runs the virtual CPU that it names.
 *
 * Two virtual CPUs are threads on one CPU, beside 1 to 7 hogs, all with slices of 2.8 ms. One
 * counts. The other names it in a hypercall, which makes KVM call yield_to(), and looks whether the
 * count is another one when it runs again. For x86-64.
 */
#include "bench_helpers.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <linux/kvm.h>
#include <linux/kvm_para.h>
#include <sys/ioctl.h>

#define MAX_HOGS	7
#define SLICE		(2800 * NSEC_PER_USEC)
#define MEASURE		(2 * NSEC_PER_SEC)

/* All memory of the virtual machine, at its address 0. */
struct guest {
	unsigned int calls, ran, count;
	unsigned char code[4096 - 12];
};

/* 16-bit code: one counts. */
static const unsigned char counts[] = {
	0x66, 0xff, 0x06, 0x08, 0x00,		/* 0: incl count */
	0xeb, 0xf9,				/*    jmp 0b */
};

/* The other waits until it does, and then begins to name it. */
static const unsigned char names[] = {
	0x66, 0x83, 0x3e, 0x08, 0x00, 0x00,	/* 0: cmpl $0, count */
	0x74, 0xf8,				/*    je 0b */
	0x66, 0x89, 0xf8,			/* 1: mov %edi, %eax */
	0x66, 0x8b, 0x36, 0x08, 0x00,		/*    mov count, %esi */
	0x0f, 0x01, 0xd9,			/*    vmmcall */
	0x66, 0xff, 0x06, 0x00, 0x00,		/*    incl calls */
	0x66, 0x3b, 0x36, 0x08, 0x00,		/*    cmp count, %esi */
	0x74, 0xe9,				/*    je 1b */
	0x66, 0xff, 0x06, 0x04, 0x00,		/*    incl ran */
	0xeb, 0xe2,				/*    jmp 1b */
};

static bool set_vcpu(int vcpu, int entry)
{
	struct kvm_mp_state state = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = {
		.rflags = 2, .rdi = KVM_HC_SCHED_YIELD, .rbx = 1,
		.rip = offsetof(struct guest, code) + entry };
	struct kvm_lapic_state apic;
	struct kvm_sregs sregs;

	if (ioctl(vcpu, KVM_GET_SREGS, &sregs) || ioctl(vcpu, KVM_GET_LAPIC, &apic))
		return false;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	/* KVM finds a virtual CPU by its ID once its APIC was set. */
	return !ioctl(vcpu, KVM_SET_SREGS, &sregs) && !ioctl(vcpu, KVM_SET_REGS, &regs) &&
		!ioctl(vcpu, KVM_SET_LAPIC, &apic) && !ioctl(vcpu, KVM_SET_MP_STATE, &state);
}

static void *run_vcpu(void *vcpu)
{
	become_fair(0, SLICE);
	for (;;)
		ioctl((long)vcpu, KVM_RUN, 0);
	return NULL;
}

/* Make a virtual machine with both virtual CPUs. */
static bool start(struct guest *guest)
{
	struct kvm_userspace_memory_region memory = {
		.memory_size = sizeof(*guest), .userspace_addr = (long)guest };
	struct kvm_enable_cap apics = { .cap = KVM_CAP_SPLIT_IRQCHIP };
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm = ioctl(kvm, KVM_CREATE_VM, 0), i;
	pthread_t thread;
	long vcpu[2];

	memcpy(guest->code, counts, sizeof(counts));
	memcpy(guest->code + sizeof(counts), names, sizeof(names));
	if (vm < 0 || ioctl(vm, KVM_ENABLE_CAP, &apics) ||
	    ioctl(vm, KVM_SET_USER_MEMORY_REGION, &memory))
		return false;
	for (i = 0; i < 2; i++)
		vcpu[i] = ioctl(vm, KVM_CREATE_VCPU, i);
	return set_vcpu(vcpu[0], sizeof(counts)) && set_vcpu(vcpu[1], 0) &&
		!pthread_create(&thread, NULL, run_vcpu, (void *)vcpu[0]) &&
		!pthread_create(&thread, NULL, run_vcpu, (void *)vcpu[1]);
}

static void measure(const void *arg)
{
	struct guest *guest = map_shared(sizeof(*guest));
	int hogs = *(const int *)arg, i;
	unsigned int calls, ran;
	pid_t pid[MAX_HOGS];

	/* It wakes up beside the hogs; these and the virtual CPUs are SCHED_OTHER. */
	if (!become_fifo(50, SCHED_RESET_ON_FORK)) {
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
		return;
	}
	for (i = 0; i < hogs; i++) {
		pid[i] = fork_task();
		if (!pid[i] && !become_fair(0, SLICE))
			_exit(1);
		while (!pid[i])
			;
	}
	if (!start(guest)) {
		report(SKIP, "no virtual machine: %s", strerror(errno));
		return;
	}
	for (i = 0; i < 2000 && !get(guest->calls); i++)
		sleep_ns(NSEC_PER_MSEC);
	calls = get(guest->calls);
	ran = get(guest->ran);
	sleep_ns(MEASURE);
	calls = get(guest->calls) - calls;
	ran = get(guest->ran) - ran;
	for (i = 0; i < hogs; i++)
		end_task(pid[i], true);
	if (calls < 20)
		report(SKIP, "the virtual CPUs hardly run: %u calls", calls);
	add_figure("calls", calls);
	add_figure("ran_percent", 100. * ran / calls);
}

int main(int argc, char **argv)
{
	int hogs;

	begin_cases("directed_yield", argc, argv, false, json_only);
	use_cpus(1);
	for (hogs = 1; hogs <= MAX_HOGS; hogs += 2) {
		snprintf(res->name, sizeof(res->name), "directed-yield-hogs-%d", hogs);
		/* The virtual CPUs end with the process, and so do the hogs. */
		run_apart(measure, &hogs);
	}
	return end_cases();
}
