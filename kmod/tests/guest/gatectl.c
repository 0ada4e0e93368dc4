// SPDX-License-Identifier: GPL-2.0
/*
 * A client of /dev/justitia for the tests in a guest: the agent's part in a page of C.
 *
 * gatectl hold [KEY=VALUE]... DIR:WEIGHT...   sets, enables, sends heartbeats until it is killed
 *     KEY is a field of struct justitia_config, `beats` (number of heartbeats; afterwards it only holds),
 *     `enable` (0: only hold) or `listen` (1: also reads DIR:WEIGHT lines from standard input)
 * gatectl set DIR:WEIGHT                      expects a refusal: prints the error
 * gatectl status                              all state, one record per line
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../abi.h"

static void fail(const char *what)
{
	fprintf(stderr, "gatectl: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The id of a cgroup is the inode number of its directory. */
static struct justitia_group group_of(char *argument)
{
	char *colon = strrchr(argument, ':');
	struct stat st;

	if (!colon) {
		fprintf(stderr, "gatectl: %s is not DIR:WEIGHT\n", argument);
		exit(2);
	}
	*colon = 0;
	if (stat(argument, &st))
		fail(argument);
	return (struct justitia_group){ .cgroup_id = st.st_ino, .weight = (__u32)atoi(colon + 1) };
}

static __u32 *setting(struct justitia_config *config, const char *name)
{
	static const char *const names[] = { "order", "aging", "lag_pages", "setpoint_permille",
					     "batch_pages", "timeout_ms", "heartbeat_ms", "reserved" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], name))
			return (__u32 *)config + i;
	fprintf(stderr, "gatectl: no setting %s\n", name);
	exit(2);
}

/* Waits this long, and executes what arrives on standard input meanwhile. */
static void listen_for(int fd, int milliseconds)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	char line[4096];

	if (poll(&input, 1, milliseconds) <= 0 || !fgets(line, sizeof(line), stdin))
		return;
	line[strcspn(line, "\n")] = 0;
	struct justitia_group group = group_of(line);
	if (ioctl(fd, JUSTITIA_IOC_SET_GROUP, &group))
		perror(line);
}

static int hold(int count, char **arguments)
{
	/* Unbuffered, so that poll() sees the lines that are left. */
	setvbuf(stdin, NULL, _IONBF, 0);

	int fd = open("/dev/justitia", O_RDWR | O_CLOEXEC);
	struct justitia_config config;
	bool listens = false;
	long beats = -1;
	__u32 enable = 1;

	if (fd < 0)
		fail("/dev/justitia");
	if (ioctl(fd, JUSTITIA_IOC_GET_CONFIG, &config))
		fail("get config");
	for (int i = 0; i < count; i++) {
		char *equals = strchr(arguments[i], '=');

		if (equals) {
			*equals = 0;
			if (!strcmp(arguments[i], "beats"))
				beats = atol(equals + 1);
			else if (!strcmp(arguments[i], "listen"))
				listens = atoi(equals + 1);
			else if (!strcmp(arguments[i], "enable"))
				enable = (__u32)atoi(equals + 1);
			else
				*setting(&config, arguments[i]) = (__u32)strtoul(equals + 1, NULL, 10);
		} else {
			struct justitia_group group = group_of(arguments[i]);

			if (ioctl(fd, JUSTITIA_IOC_SET_GROUP, &group))
				fail(arguments[i]);
		}
	}
	if (ioctl(fd, JUSTITIA_IOC_SET_CONFIG, &config))
		fail("set config");
	if (ioctl(fd, JUSTITIA_IOC_ENABLE, &enable))
		fail("enable");
	puts("held");
	fflush(stdout);
	for (; beats; beats -= beats > 0) {
		if (ioctl(fd, JUSTITIA_IOC_HEARTBEAT))
			fail("heartbeat");
		if (listens)
			listen_for(fd, (int)config.heartbeat_ms / 4);
		else
			usleep(config.heartbeat_ms * 1000 / 4);
	}
	pause();
	return 0;
}

static int status(void)
{
	static struct justitia_device devices[64];
	static struct justitia_member members[4096];
	struct justitia_list list = { .buffer = (unsigned long)devices, .capacity = 64 };
	struct justitia_config config;
	struct justitia_info info;
	int fd = open("/dev/justitia", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail("/dev/justitia");
	if (ioctl(fd, JUSTITIA_IOC_INFO, &info) || ioctl(fd, JUSTITIA_IOC_DEVICES, &list) ||
	    ioctl(fd, JUSTITIA_IOC_GET_CONFIG, &config))
		fail("status");
	printf("gate version=%u open=%u groups=%u devices=%u background=%llu freerun=%llu setpoint=%llu "
	       "calls=%llu passed=%llu heartbeats=%llu lost=%llu refused=%llu\n",
	       info.version, info.open_reason, info.groups, info.devices, info.background_pages,
	       info.freerun_pages, info.setpoint_pages, info.calls, info.passed, info.heartbeats,
	       info.heartbeats_lost, info.devices_refused);
	printf("config order=%u aging=%u timeout_ms=%u heartbeat_ms=%u\n", config.order, config.aging,
	       config.timeout_ms, config.heartbeat_ms);
	for (__u32 i = 0; i < list.count && i < list.capacity; i++) {
		struct justitia_device *d = &devices[i];

		printf("device bdi=%llu number=%u:%u setpoint=%llu dirty=%llu writeback=%llu unspent=%llu "
		       "budget=%lld enqueued=%llu granted=%llu reordered=%llu timed_out=%llu killed=%llu "
		       "opened=%llu longest_wait_ms=%llu waiting=%u longest_queue=%u lengths=",
		       d->bdi_id, d->major, d->minor, d->setpoint_pages, d->dirty_pages, d->writeback_pages,
		       d->unspent_pages, d->budget_pages, d->enqueued, d->granted, d->reordered, d->timed_out,
		       d->killed, d->opened, d->longest_wait_ns / 1000000, d->waiting, d->longest_queue);
		for (int bin = 0; bin < JUSTITIA_LENGTHS; bin++)
			printf("%s%llu", bin ? "," : "", d->lengths[bin]);
		putchar('\n');
	}
	list = (struct justitia_list){ .buffer = (unsigned long)members, .capacity = 4096 };
	if (ioctl(fd, JUSTITIA_IOC_MEMBERS, &list))
		fail("members");
	for (__u32 i = 0; i < list.count && i < list.capacity; i++) {
		struct justitia_member *m = &members[i];

		printf("member cgroup=%llu bdi=%llu weight=%u waiting=%u pages=%llu waits=%llu wait_ms=%llu "
		       "timed_out=%llu\n",
		       m->cgroup_id, m->bdi_id, m->weight, m->waiting, m->pages, m->waits,
		       m->wait_ns / 1000000, m->timed_out);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "hold"))
		return hold(argc - 2, argv + 2);
	if (argc == 2 && !strcmp(argv[1], "status"))
		return status();
	if (argc == 3 && !strcmp(argv[1], "set")) {
		struct justitia_group group = group_of(argv[2]);
		int fd = open("/dev/justitia", O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			fail("/dev/justitia");
		if (ioctl(fd, JUSTITIA_IOC_SET_GROUP, &group))
			fail("set");
		return 0;
	}
	fputs("usage: gatectl hold|set|status ...\n", stderr);
	return 2;
}
