/* disk.c -- compiled code across runs: a file is HEADER | SHA-256 of the key | SHA-256 of the code | code.
 *
 * The key is everything the code depends on: text, architecture, compiler, version. What does not match is compiled
 * again. Files appear whole, by rename, so that any number of processes may use one folder. When they are more than
 * MOST_BYTES, those that were of no use for longest go. */
#define _GNU_SOURCE /* mkostemp */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/cuda/cuda.h"
#include "core/sha256.h"

enum { LONGEST = 1 << 28, MOST_BYTES = 1 << 30, NAME = 64, HOUR = 3600, DAY = 24 * HOUR };
static const char header[16] = "ambi kernel 1\n";

static void file_name(const char *dir, const unsigned char key[32], char *out, size_t n) {
  int used = snprintf(out, n, "%s/", dir);
  for (int i = 0; i < 32 && used > 0 && (size_t)used < n; i++)
    used += snprintf(out + used, n - (size_t)used, "%02x", key[i]);
}

static void digest_of(const image *code, unsigned char digest[32]) {
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, code->bytes, code->size);
  sha256_end(&s, digest);
}

static bool read_exactly(FILE *f, void *to, size_t n) { return fread(to, 1, n, f) == n; }

/* The length of a plain file that none but this user, or the system's, can have written; else 0. A folder that others
 * may write to is no place to take code from blindly. */
static size_t trusted_length(int fd) {
  struct stat s;
  if (fstat(fd, &s) || !S_ISREG(s.st_mode) || (s.st_mode & (S_IWGRP | S_IWOTH))) return 0;
  return (s.st_uid == geteuid() || s.st_uid == 0) && s.st_size > 0 && s.st_size < LONGEST ? (size_t)s.st_size : 0;
}

static bool read_file(FILE *f, const unsigned char key[32], image *out) {
  char head[sizeof header];
  unsigned char digests[64], actual[32];
  size_t length = trusted_length(fileno(f));
  if (length <= sizeof head + sizeof digests) return false;
  if (!read_exactly(f, head, sizeof head) || memcmp(head, header, sizeof head)) return false;
  if (!read_exactly(f, digests, sizeof digests) || memcmp(digests, key, 32)) return false;
  out->size = length - sizeof head - sizeof digests;
  out->bytes = malloc(out->size);
  if (out->bytes && read_exactly(f, out->bytes, out->size)) {
    digest_of(out, actual);
    if (!memcmp(actual, digests + 32, 32)) return true;
  }
  free(out->bytes);
  return false;
}

/* The time of a file says when it was last of use, to a day. */
static void mark_used(int fd) {
  struct stat s;
  if (fstat(fd, &s) == 0 && s.st_mtime < time(NULL) - DAY) (void)!futimens(fd, NULL);
}

bool disk_read(const char *dir, const unsigned char key[32], image *out) {
  char name[700];
  if (!*dir) return false;
  file_name(dir, key, name, sizeof name);
  int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe of that name is not waited for */
  FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
  if (!f) {
    if (fd >= 0) close(fd);
    return false;
  }
  bool good = read_file(f, key, out);
  if (good) mark_used(fd);
  fclose(f);
  return good;
}

/* mkdir -p */
static void make_folder(const char *dir) {
  char path[600];
  snprintf(path, sizeof path, "%s", dir);
  for (char *c = path + 1; *c; c++)
    if (*c == '/') {
      *c = 0;
      mkdir(path, 0700);
      *c = '/';
    }
  mkdir(path, 0700);
}

bool disk_prepare(const char *dir) {
  struct stat s;
  if (!*dir) return false;
  make_folder(dir);
  return stat(dir, &s) == 0 && S_ISDIR(s.st_mode) && faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0;
}

/* ---- tidying up ---- */
typedef struct {
  char name[NAME + 8]; /* of a kernel, or that and .XXXXXX while it is written */
  int64_t bytes;
  time_t used;
} kept;

static bool is_kept(const char *name) {
  const size_t digits = strspn(name, "0123456789abcdef"), n = strlen(name);
  return digits == NAME && (n == NAME || (n == NAME + 7 && name[NAME] == '.'));
}

/* The kernels of a folder; how many. Drafts that a process left behind when it was killed go at once. */
static int64_t list_kept(DIR *folder, kept **list, int64_t *bytes) {
  int64_t count = 0, room = 0;
  struct stat s;
  for (struct dirent *e; (e = readdir(folder));) {
    if (!is_kept(e->d_name) || fstatat(dirfd(folder), e->d_name, &s, AT_SYMLINK_NOFOLLOW)) continue;
    if (e->d_name[NAME] == '.') {
      if (s.st_mtime < time(NULL) - HOUR) unlinkat(dirfd(folder), e->d_name, 0);
      continue;
    }
    if (count == room) {
      kept *more = realloc(*list, (size_t)(room = 2 * room + 64) * sizeof *more);
      if (!more) return count;
      *list = more;
    }
    (*list)[count] = (kept){.bytes = s.st_size, .used = s.st_mtime};
    memcpy((*list)[count++].name, e->d_name, NAME + 1);
    *bytes += s.st_size;
  }
  return count;
}

static int by_age(const void *a, const void *b) {
  const time_t x = ((const kept *)a)->used, y = ((const kept *)b)->used;
  return (x > y) - (x < y);
}

void disk_tidy(const char *dir, int64_t most) {
  DIR *folder = opendir(dir);
  kept *list = NULL;
  int64_t bytes = 0, count = folder ? list_kept(folder, &list, &bytes) : 0;
  if (bytes > most) qsort(list, (size_t)count, sizeof *list, by_age);
  for (int64_t i = 0; i < count && bytes > most; i++)
    if (unlinkat(dirfd(folder), list[i].name, 0) == 0 || errno == ENOENT) /* or another process did */
      bytes -= list[i].bytes;
  free(list);
  if (folder) closedir(folder);
}

/* ---- writing ---- */
/* A cache that cannot be written costs time, not correctness: failures are silent. */
void disk_write(const char *dir, const unsigned char key[32], const image *in) {
  char name[700], temporary[740];
  unsigned char digest[32];
  if (!*dir) return;
  make_folder(dir);
  file_name(dir, key, name, sizeof name);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", name);
  int fd = mkostemp(temporary, O_CLOEXEC);
  FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
  if (!f) {
    if (fd >= 0) close(fd), unlink(temporary);
    return;
  }
  digest_of(in, digest);
  bool good = fwrite(header, sizeof header, 1, f) == 1 && fwrite(key, 32, 1, f) == 1 && fwrite(digest, 32, 1, f) == 1 &&
              fwrite(in->bytes, in->size, 1, f) == 1;
  good = fclose(f) == 0 && good;
  if (!good || rename(temporary, name)) unlink(temporary);
  if (key[0] % 16 == 0) disk_tidy(dir, MOST_BYTES); /* now and then */
}
