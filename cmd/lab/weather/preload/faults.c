/* Loaded into PostgreSQL (LD_PRELOAD): as its control file says, the wall clock is wrong, fsync fails, and no file grows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
	volatile int64_t skew; /* microseconds that the clock is ahead */
	volatile int32_t sync; /* 1: fsync fails */
	volatile int32_t full; /* 1: the disk is full */
};

static struct control fair, *control = &fair;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("WEATHER_FAULTS");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		control = at;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	REAL(gettimeofday);
	int r = real(tv, tz);
	if (r == 0 && control->skew) {
		int64_t us = (int64_t)tv->tv_sec * 1000000 + tv->tv_usec + control->skew;
		tv->tv_sec = us / 1000000;
		tv->tv_usec = us % 1000000;
	}
	return r;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	REAL(clock_gettime);
	int r = real(id, ts);
	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && control->skew) {
		int64_t us = (int64_t)ts->tv_sec * 1000000 + ts->tv_nsec / 1000 + control->skew;
		ts->tv_sec = us / 1000000;
		ts->tv_nsec = us % 1000000 * 1000 + ts->tv_nsec % 1000;
	}
	return r;
}

time_t time(time_t *t)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}

static int fails(void)
{
	if (!control->sync)
		return 0;
	errno = EIO;
	return 1;
}

int fsync(int fd)
{
	REAL(fsync);
	return fails() ? -1 : real(fd);
}

int fdatasync(int fd)
{
	REAL(fdatasync);
	return fails() ? -1 : real(fd);
}

/* grows says that a regular file would become longer, which a full disk has no room for. The log goes on. */
static int grows(int fd, off_t at, size_t bytes)
{
	struct stat info;
	if (!control->full || fd <= 2 || fstat(fd, &info) || !S_ISREG(info.st_mode))
		return 0;
	if (at < 0)
		at = lseek(fd, 0, SEEK_CUR);
	if (at < 0 || at + (off_t)bytes <= info.st_size)
		return 0;
	errno = ENOSPC;
	return 1;
}

static size_t length(const struct iovec *iov, int n)
{
	size_t all = 0;
	for (int i = 0; i < n; i++)
		all += iov[i].iov_len;
	return all;
}

ssize_t write(int fd, const void *b, size_t n)
{
	REAL(write);
	return grows(fd, -1, n) ? -1 : real(fd, b, n);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	REAL(writev);
	return grows(fd, -1, length(iov, n)) ? -1 : real(fd, iov, n);
}

ssize_t pwrite(int fd, const void *b, size_t n, off_t at)
{
	REAL(pwrite);
	return grows(fd, at, n) ? -1 : real(fd, b, n, at);
}

ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at)
{
	REAL(pwrite64);
	return grows(fd, at, n) ? -1 : real(fd, b, n, at);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	REAL(pwritev);
	return grows(fd, at, length(iov, n)) ? -1 : real(fd, iov, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t at)
{
	REAL(pwritev64);
	return grows(fd, at, length(iov, n)) ? -1 : real(fd, iov, n, at);
}

int posix_fallocate(int fd, off_t at, off_t n)
{
	REAL(posix_fallocate);
	return grows(fd, at, n) ? ENOSPC : real(fd, at, n);
}

int posix_fallocate64(int fd, off64_t at, off64_t n)
{
	REAL(posix_fallocate64);
	return grows(fd, at, n) ? ENOSPC : real(fd, at, n);
}
