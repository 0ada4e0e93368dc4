// SPDX-License-Identifier: GPL-2.0
/*
 * Writes through the page cache for a while and reports the throughput.
 * Usage: writer DIR SECONDS THREADS [KIND [NUMBER]]
 *
 *   files [KEPT]       new files of 4 MB by writes of 64 KB. Each replaces a deleted one, of KEPT (16) per
 *                      thread, so neither truncation (auto_da_alloc) nor a full disk interferes. With few
 *                      kept, files are deleted while they are dirty.
 *   mmap               the same files, dirtied by page faults of a shared mapping
 *   uring [KEPT]       such files, by io_uring with four writes in flight
 *   trickle [KB/S]     the same files, each thread at this rate (256)
 *   overwrite [MB]     4 KB at random places of one file of this size (8) per thread
 *   direct [KB]        200 times this many KB (1024) past the page cache, then 64 KB through it; then
 *                      nothing. Only the latter count.
 *   big [MB]           new files, each by a single write(2) of this size (32)
 *   append             64 KB at the end of DIR/shared, to which others append as well
 *   freeze             freezes the file system of DIR and thaws it, every second
 *
 * Prints bytes per second at the end, and with PROGRESS set also the bytes so far every second. The first
 * WARM_UP seconds (0), which come before SECONDS, are not counted: nobody waits while few pages are dirty,
 * and the first files replace others that may still be dirty. `freeze` prints the duration of the longest
 * freeze, in milliseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES (4u << 20)
#define WRITE_BYTES (64u << 10)
#define DEPTH 4

static const char *directory;
static unsigned number;
static unsigned long long written;
static unsigned long long longest_ms;
static volatile int stop;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void count(unsigned bytes)
{
	__atomic_fetch_add(&written, bytes, __ATOMIC_RELAXED);
}

/* The thread's next file, which replaces one it made before. */
static int next_file(long thread, unsigned long file, unsigned kept)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%ld-%lu", directory, thread, file % kept);
	unlink(path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	if (fd < 0)
		fail(path);
	return fd;
}

static char *buffer(void)
{
	char *bytes = malloc(WRITE_BYTES);

	memset(bytes, 'j', WRITE_BYTES);
	return bytes;
}

static void *write_files(void *argument)
{
	long thread = (long)argument;
	char *bytes = buffer();

	for (unsigned long file = 0; !stop; file++) {
		int fd = next_file(thread, file, number ? number : 16);

		for (unsigned done = 0; done < FILE_BYTES && !stop; done += WRITE_BYTES) {
			if (write(fd, bytes, WRITE_BYTES) != WRITE_BYTES)
				fail("write");
			count(WRITE_BYTES);
		}
		close(fd);
	}
	return NULL;
}

static void *trickle(void *argument)
{
	long thread = (long)argument;
	char *bytes = buffer();
	unsigned long long each_ns = 1000000000ull * (WRITE_BYTES >> 10) / (number ? number : 256);
	struct timespec next;
	int fd = -1;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (unsigned long piece = 0; !stop; piece++) {
		if (piece % (FILE_BYTES / WRITE_BYTES) == 0) {
			close(fd);
			fd = next_file(thread, piece / (FILE_BYTES / WRITE_BYTES), 16);
		}
		if (write(fd, bytes, WRITE_BYTES) != WRITE_BYTES)
			fail("write");
		count(WRITE_BYTES);
		next.tv_nsec += (long)(each_ns % 1000000000);
		next.tv_sec += (time_t)(each_ns / 1000000000) + next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

static void *map_files(void *argument)
{
	long thread = (long)argument;

	for (unsigned long file = 0; !stop; file++) {
		int fd = next_file(thread, file, 16);
		char *map;

		if (ftruncate(fd, FILE_BYTES))
			fail("ftruncate");
		map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED)
			fail("mmap");
		for (unsigned done = 0; done < FILE_BYTES && !stop; done += 4096) {
			map[done] = 'j';
			count(4096);
		}
		munmap(map, FILE_BYTES);
		close(fd);
	}
	return NULL;
}

static void *overwrite(void *argument)
{
	long thread = (long)argument;
	unsigned pages = (number ? number : 8) << 8;
	unsigned long long random = (unsigned long long)thread + 1;
	char *bytes = buffer();
	int fd = next_file(thread, 0, 1);

	for (unsigned page = 0; page < pages; page += WRITE_BYTES >> 12)
		if (write(fd, bytes, WRITE_BYTES) != WRITE_BYTES)
			fail("write");
	while (!stop) {
		/* Knuth's MMIX generator; its upper bits are the good ones. */
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (pwrite(fd, bytes, 4096, (off_t)((random >> 33) % pages) << 12) != 4096)
			fail("pwrite");
		count(4096);
	}
	return NULL;
}

static void *write_past_the_cache(void *argument)
{
	long thread = (long)argument;
	size_t bytes = (size_t)(number ? number : 1024) << 10;
	char *aligned, path[4096];
	int direct, fd;

	if (posix_memalign((void **)&aligned, 4096, bytes > WRITE_BYTES ? bytes : WRITE_BYTES))
		fail("posix_memalign");
	memset(aligned, 'j', bytes > WRITE_BYTES ? bytes : WRITE_BYTES);
	snprintf(path, sizeof(path), "%s/direct%ld", directory, thread);
	direct = open(path, O_CREAT | O_RDWR | O_DIRECT, 0600);
	fd = next_file(thread, 0, 1);
	if (direct < 0)
		fail(path);
	for (int round = 0; round < 200; round++) {
		if (pwrite(direct, aligned, bytes, 0) != (ssize_t)bytes ||
		    write(fd, aligned, WRITE_BYTES) != WRITE_BYTES)
			fail("write");
		count(WRITE_BYTES);
	}
	return NULL;
}

static void *write_big(void *argument)
{
	long thread = (long)argument;
	size_t bytes = (size_t)(number ? number : 32) << 20;
	char *big = malloc(bytes);

	memset(big, 'j', bytes);
	for (unsigned long file = 0; !stop; file++) {
		int fd = next_file(thread, file, 2);

		if (write(fd, big, bytes) != (ssize_t)bytes)
			fail("write");
		count((unsigned)bytes);
		close(fd);
	}
	return NULL;
}

static void *append(void *argument)
{
	char *bytes = buffer(), path[4096];
	int fd;

	(void)argument;
	snprintf(path, sizeof(path), "%s/shared", directory);
	fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
	if (fd < 0)
		fail(path);
	while (!stop) {
		if (write(fd, bytes, WRITE_BYTES) != WRITE_BYTES)
			fail("write");
		count(WRITE_BYTES);
		if (lseek(fd, 0, SEEK_CUR) > 64 << 20 && ftruncate(fd, 0))
			fail("ftruncate");
	}
	return NULL;
}

static void *freeze(void *argument)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY);

	(void)argument;
	while (!stop) {
		struct timespec begin, end;
		unsigned long long ms;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		if (ioctl(fd, FIFREEZE, 0))
			fail("freeze");
		clock_gettime(CLOCK_MONOTONIC, &end);
		if (ioctl(fd, FITHAW, 0))
			fail("thaw");
		ms = (unsigned long long)((end.tv_sec - begin.tv_sec) * 1000 +
					  (end.tv_nsec - begin.tv_nsec) / 1000000);
		if (ms > longest_ms)
			longest_ms = ms;
		sleep(1);
	}
	return NULL;
}

/* The rings of io_uring(7), without liburing. */
struct ring {
	int fd;
	unsigned *submit_tail, *submit_mask, *submit_array;
	unsigned *complete_head, *complete_tail, *complete_mask;
	struct io_uring_sqe *entries;
	struct io_uring_cqe *completions;
};

static void *mapped(int fd, size_t size, off_t offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);

	if (at == MAP_FAILED)
		fail("mmap of a ring");
	return at;
}

static struct ring open_ring(void)
{
	struct io_uring_params p = {};
	struct ring ring = { .fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p) };
	char *submit, *complete;

	if (ring.fd < 0)
		fail("io_uring_setup");
	submit = mapped(ring.fd, p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
	complete = mapped(ring.fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
			  IORING_OFF_CQ_RING);
	ring.entries = mapped(ring.fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	ring.submit_tail = (unsigned *)(submit + p.sq_off.tail);
	ring.submit_mask = (unsigned *)(submit + p.sq_off.ring_mask);
	ring.submit_array = (unsigned *)(submit + p.sq_off.array);
	ring.complete_head = (unsigned *)(complete + p.cq_off.head);
	ring.complete_tail = (unsigned *)(complete + p.cq_off.tail);
	ring.complete_mask = (unsigned *)(complete + p.cq_off.ring_mask);
	ring.completions = (struct io_uring_cqe *)(complete + p.cq_off.cqes);
	return ring;
}

/* Submits a write, and waits until fewer than DEPTH are in flight, or until none are if `bytes` is NULL. */
static void ring_write(struct ring *ring, unsigned *under_way, int fd, const char *bytes, unsigned offset)
{
	unsigned least = *under_way, head;

	if (bytes) {
		unsigned tail = *ring->submit_tail, at = tail & *ring->submit_mask;

		ring->entries[at] = (struct io_uring_sqe){
			.opcode = IORING_OP_WRITE,
			.fd = fd,
			.addr = (unsigned long)bytes,
			.len = WRITE_BYTES,
			.off = offset,
		};
		ring->submit_array[at] = at;
		__atomic_store_n(ring->submit_tail, tail + 1, __ATOMIC_RELEASE);
		++*under_way;
		least = *under_way == DEPTH;
	}
	if (syscall(SYS_io_uring_enter, ring->fd, bytes ? 1 : 0, least, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		fail("io_uring_enter");
	for (head = *ring->complete_head; head != __atomic_load_n(ring->complete_tail, __ATOMIC_ACQUIRE);
	     head++, --*under_way) {
		int result = ring->completions[head & *ring->complete_mask].res;

		if (result != (int)WRITE_BYTES) {
			fprintf(stderr, "writer: a write of the io_uring returned %d\n", result);
			exit(1);
		}
		count(WRITE_BYTES);
	}
	__atomic_store_n(ring->complete_head, head, __ATOMIC_RELEASE);
}

static void *ring_files(void *argument)
{
	long thread = (long)argument;
	struct ring ring = open_ring();
	char *bytes = buffer();
	unsigned under_way = 0;

	for (unsigned long file = 0; !stop; file++) {
		int fd = next_file(thread, file, number ? number : 16);

		for (unsigned done = 0; done < FILE_BYTES && !stop; done += WRITE_BYTES)
			ring_write(&ring, &under_way, fd, bytes, done);
		while (under_way)
			ring_write(&ring, &under_way, fd, NULL, 0);
		close(fd);
	}
	return NULL;
}

static const struct {
	const char *name;
	void *(*body)(void *);
} kinds[] = {
	{ "files", write_files },
	{ "mmap", map_files },
	{ "uring", ring_files },
	{ "trickle", trickle },
	{ "overwrite", overwrite },
	{ "direct", write_past_the_cache },
	{ "big", write_big },
	{ "append", append },
	{ "freeze", freeze },
};

int main(int argc, char **argv)
{
	int seconds = argc > 2 ? atoi(argv[2]) : 0;
	long threads = argc > 3 ? atol(argv[3]) : 1;
	const char *name = argc > 4 ? argv[4] : "files";
	void *(*body)(void *) = NULL;
	pthread_t thread;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].name, name))
			body = kinds[i].body;
	if (seconds < 1 || threads < 1 || !body) {
		fputs("usage: writer DIR SECONDS THREADS [KIND [NUMBER]]\n", stderr);
		return 2;
	}
	if (argc > 5)
		number = (unsigned)atoi(argv[5]);
	directory = argv[1];
	for (long i = 0; i < threads; i++)
		pthread_create(&thread, NULL, body, (void *)i);
	if (getenv("WARM_UP"))
		sleep((unsigned)atoi(getenv("WARM_UP")));
	__atomic_store_n(&written, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < seconds; i++) {
		sleep(1);
		if (getenv("PROGRESS"))
			fprintf(stderr, "%d %llu\n", i + 1, __atomic_load_n(&written, __ATOMIC_RELAXED));
	}
	if (body == freeze) {
		/* Leave nothing frozen. */
		stop = 1;
		pthread_join(thread, NULL);
	}
	printf("%llu\n", body == freeze ? longest_ms :
				       __atomic_load_n(&written, __ATOMIC_RELAXED) / (unsigned)seconds);
	return 0;
}
