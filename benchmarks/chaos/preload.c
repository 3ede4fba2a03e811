/* Loaded into commands by LD_PRELOAD: a clock that jumps (LUDUS_CHAOS_CLOCK), a disk that is slow (LUDUS_CHAOS_SYNC, seconds), and a quota
   on what is written into regular files (LUDUS_CHAOS_QUOTA, kB of each process). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long YEAR = 365L * 24 * 3600;

static void rest(void) {
    const char *seconds = getenv("LUDUS_CHAOS_SYNC");
    if (seconds) usleep((useconds_t)(atof(seconds) * 1e6));
}

int fsync(int file) { rest(); return (int)syscall(SYS_fsync, file); }

int fdatasync(int file) { rest(); return (int)syscall(SYS_fdatasync, file); }

static void move(struct timespec *at) {
    static unsigned state = 1;
    static long first;
    const char *how = getenv("LUDUS_CHAOS_CLOCK");
    if (!how) return;
    if (!first) first = at->tv_sec;
    state = state * 1103515245u + 12345u + (unsigned)at->tv_nsec;
    if (!strcmp(how, "jump")) at->tv_sec += (long)(state >> 8) % YEAR - YEAR / 2;
    if (!strcmp(how, "back")) at->tv_sec = first - 60 * (at->tv_sec - first);
    if (!strcmp(how, "far")) at->tv_sec -= 60 * YEAR;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    int answer = (int)syscall(SYS_clock_gettime, which, at);
    if (!answer && which == CLOCK_REALTIME) move(at);
    return answer;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

static int over(int file, size_t size) {
    static size_t total;
    struct stat status;
    const char *quota = getenv("LUDUS_CHAOS_QUOTA");
    if (!quota || file <= 2 || fstat(file, &status) || !S_ISREG(status.st_mode)) return 0;
    total += size;
    if (total <= (size_t)atol(quota) * 1024) return 0;
    errno = EDQUOT;
    return 1;
}

ssize_t write(int file, const void *bytes, size_t size) { return over(file, size) ? -1 : syscall(SYS_write, file, bytes, size); }

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return over(file, size) ? -1 : syscall(SYS_pwrite64, file, bytes, size, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at) { return pwrite(file, bytes, size, at); }
