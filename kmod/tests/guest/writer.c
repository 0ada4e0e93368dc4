// SPDX-License-Identifier: GPL-2.0
/*
 * Writes files through the page cache for a while and says how much: writer DIR SECONDS THREADS [KB]
 * New files of 4 MB by writes of 64 KB (or so many KB); each takes the place of one deleted, so that
 * neither truncation (auto_da_alloc) nor a full disk plays a part. Prints bytes per second once at the
 * end, and with PROGRESS set also every second.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (4 << 20)
#define KEPT 16

static const char *directory;
static unsigned write_bytes = 64 << 10;
static unsigned long long written;
static volatile int stop;

static void *write_files(void *argument)
{
	long thread = (long)argument;
	char path[4096];
	char *buffer = malloc(write_bytes);

	memset(buffer, 'j', write_bytes);
	for (unsigned long number = 0; !stop; number++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%ld-%lu", directory, thread, number % KEPT);
		unlink(path);
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0) {
			perror(path);
			exit(1);
		}
		for (unsigned done = 0; done < FILE_BYTES && !stop; done += write_bytes) {
			if (write(fd, buffer, write_bytes) != (ssize_t)write_bytes) {
				perror(path);
				exit(1);
			}
			__atomic_fetch_add(&written, write_bytes, __ATOMIC_RELAXED);
		}
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int seconds = argc > 2 ? atoi(argv[2]) : 0;
	long threads = argc > 3 ? atol(argv[3]) : 1;
	pthread_t thread;

	if (seconds < 1 || threads < 1) {
		fputs("usage: writer DIR SECONDS THREADS [KB]\n", stderr);
		return 2;
	}
	if (argc > 4)
		write_bytes = (unsigned)atoi(argv[4]) << 10;
	directory = argv[1];
	for (long i = 0; i < threads; i++)
		pthread_create(&thread, NULL, write_files, (void *)i);
	for (int i = 0; i < seconds; i++) {
		sleep(1);
		if (getenv("PROGRESS"))
			fprintf(stderr, "%d %llu\n", i + 1, __atomic_load_n(&written, __ATOMIC_RELAXED));
	}
	printf("%llu\n", __atomic_load_n(&written, __ATOMIC_RELAXED) / (unsigned)seconds);
	return 0;
}
