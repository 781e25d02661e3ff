/* What both stub libraries share: boards that answer from a recording.
 *
 * WATTKEEPER_STUB_ROWS    file of rows, one reading each: allocated MiB (-1: bare), mW, SM MHz, memory MHz, GPU °C,
 *                         memory °C (-1: no sensor), MiB in use, MiB free, MiB in all, limit in mW
 * WATTKEEPER_STUB_STATE   file of BOARD_BYTES zeros, mapped by every process that loads a stub: who holds what
 * WATTKEEPER_STUB_CALLS   file to which each change of what is held is appended
 * WATTKEEPER_STUB_BOARDS  how many boards there are (1)
 * WATTKEEPER_STUB_FAULTS  what goes wrong, comma-separated, each `name` or `name@readings`
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BOARDS 4
#define MOST_HOLDERS 16
#define MOST_ROWS 4096
#define BOARD_BYTES 65536

struct row { long level, power, sm, memory_clock, celsius, memory_celsius, used, free, total, limit; };
struct holder { int pid, contexts; unsigned long long bytes; };
struct board { struct holder holders[MOST_HOLDERS]; unsigned readings; };

static struct row rows[MOST_ROWS];
static int row_count;

static struct board *boards(void) {
    static struct board *mapped;
    const char *path = getenv("WATTKEEPER_STUB_STATE");
    int file;
    if (mapped) return mapped;
    file = path ? open(path, O_RDWR) : -1;
    if (file < 0) { perror("WATTKEEPER_STUB_STATE"); abort(); }
    mapped = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) { perror("WATTKEEPER_STUB_STATE"); abort(); }
    return mapped;
}

static int board_count(void) {
    const char *count = getenv("WATTKEEPER_STUB_BOARDS");
    return count ? atoi(count) : 1;
}

static void load_rows(void) {
    const char *path = getenv("WATTKEEPER_STUB_ROWS");
    FILE *file = path ? fopen(path, "r") : NULL;
    struct row *row = rows;
    if (row_count) return;
    if (!file) { perror("WATTKEEPER_STUB_ROWS"); abort(); }
    while (row_count < MOST_ROWS &&
           fscanf(file, "%ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", &row->level, &row->power, &row->sm,
                  &row->memory_clock, &row->celsius, &row->memory_celsius, &row->used, &row->free, &row->total,
                  &row->limit) == 10)
        row = rows + ++row_count;
    fclose(file);
}

/* The process's entry of a board; those of processes that ended are given back, as a kernel driver would. */
static struct holder *holder_of(struct board *board, int pid) {
    struct holder *free_entry = NULL;
    for (int i = 0; i < MOST_HOLDERS; i++) {
        struct holder *each = board->holders + i;
        if (each->pid && kill(each->pid, 0)) memset(each, 0, sizeof *each);
        if (each->pid == pid) return each;
        if (!each->pid && !free_entry) free_entry = each;
    }
    if (pid && free_entry) free_entry->pid = pid;
    return free_entry;
}

static int contexts_on(struct board *board, unsigned long long *bytes) {
    int contexts = 0;
    holder_of(board, 0);
    *bytes = 0;
    for (int i = 0; i < MOST_HOLDERS; i++) {
        contexts += board->holders[i].contexts;
        *bytes += board->holders[i].bytes;
    }
    return contexts;
}

/* The level that the board is at by what is held; MiB held beyond it in `beyond`. */
static long level_now(struct board *board, long *beyond) {
    unsigned long long bytes;
    long level = -1, held;
    if (!contexts_on(board, &bytes)) { *beyond = 0; return -1; }
    held = (long)(bytes >> 20);
    for (int i = 0; i < row_count; i++)
        if (rows[i].level <= held && rows[i].level > level) level = rows[i].level;
    *beyond = held - level;
    return level;
}

/* The reading of a board: the rows of its level, one after the other and round again. */
static inline struct row row_now(struct board *board, int next) {
    static int position;
    static long at_level = -2;
    long beyond, level;
    int seen = 0, of_level = 0;
    struct row found;
    load_rows();
    level = level_now(board, &beyond);
    for (int i = 0; i < row_count; i++) of_level += rows[i].level == level;
    if (level != at_level) { at_level = level; position = 0; } else position += next;
    memset(&found, 0, sizeof found);
    for (int i = 0; i < row_count; i++)
        if (rows[i].level == level && seen++ == position % of_level) found = rows[i];
    found.used += beyond;
    found.free -= beyond;
    return found;
}

/* Whether a fault is asked for, and the board was read so often as it says; `value` is what stands after the @. */
static int fault_value(const char *name, long *value) {
    const char *found = getenv("WATTKEEPER_STUB_FAULTS");
    size_t length = strlen(name);
    for (; found && *found; found = strchr(found, ',') ? strchr(found, ',') + 1 : NULL)
        if (!strncmp(found, name, length) && (!found[length] || strchr(",@", found[length]))) {
            *value = found[length] == '@' ? atol(found + length + 1) : 0;
            return 1;
        }
    return 0;
}

static int fault(const char *name, struct board *board) {
    long readings;
    return fault_value(name, &readings) && (!readings || (board && board->readings > readings));
}

static inline void note(const char *call, int board, unsigned long long bytes) {
    const char *path = getenv("WATTKEEPER_STUB_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %d %llu\n", call, board, bytes);
    fclose(file);
}
