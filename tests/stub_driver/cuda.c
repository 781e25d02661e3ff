/* A stub of libcuda.so.1: contexts and memory that stub boards remember. CUDA's order of boards is NVML's turned
 * round. With -DOLD_DRIVER it lacks what a driver of 2017 lacks. */
#include "board.h"

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, UNAVAILABLE = 46, NO_DEVICE = 100, INVALID_CONTEXT = 201 };
#define MOST_BLOCKS 64

static struct { int board; unsigned long long bytes; } blocks[MOST_BLOCKS];
static int current = -1;

static int board_of(int cuda_device) { return board_count() - 1 - cuda_device; }

static struct holder *own(int board) { return holder_of(boards() + board, getpid()); }

int cuInit(unsigned flags) {
    (void)flags;
    return fault("no_device", NULL) ? NO_DEVICE : OK;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == UNAVAILABLE   ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
          : code == NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                  : NULL;
    return *name ? OK : INVALID_VALUE;
}

int cuDeviceGetCount(int *count) { *count = board_count(); return OK; }

int cuDeviceGet(int *found, int ordinal) { *found = ordinal; return OK; }

int cuDeviceGetByPCIBusId(int *found, const char *bus_id) {
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > (unsigned)board_count()) return NO_DEVICE;
    *found = board_count() - bus;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int cuda_device) {
    int board = board_of(cuda_device);
    if (fault("exclusive", NULL)) return UNAVAILABLE;
    own(board)->contexts++;
    note("retain", board, 0);
    *context = boards() + board;
    return OK;
}

static int release(int cuda_device) {
    int board = board_of(cuda_device);
    struct holder *mine = own(board);
    note("release", board, mine->bytes);
    if (--mine->contexts == 0) mine->bytes = 0;
    return OK;
}

int cuCtxSetCurrent(void *context) {
    current = context ? (int)((struct board *)context - boards()) : -1;
    return OK;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    long gib;
    if (current < 0) return INVALID_CONTEXT;
    if (fault_value("oom", &gib) && own(current)->bytes + bytes > (unsigned long long)gib << 30) return OUT_OF_MEMORY;
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!blocks[i].bytes) {
            blocks[i].board = current;
            blocks[i].bytes = bytes;
            own(current)->bytes += bytes;
            note("allocate", current, bytes);
            *address = i + 1;
            return OK;
        }
    return OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long address) {
    int i = (int)address - 1;
    if (current < 0) return INVALID_CONTEXT;
    if (i < 0 || i >= MOST_BLOCKS || !blocks[i].bytes) return INVALID_VALUE;
    own(blocks[i].board)->bytes -= blocks[i].bytes;
    note("free", blocks[i].board, blocks[i].bytes);
    blocks[i].bytes = 0;
    return OK;
}

#ifdef OLD_DRIVER
int cuDevicePrimaryCtxRelease(int cuda_device) { return release(cuda_device); }
#else
int cuDevicePrimaryCtxRelease_v2(int cuda_device) { return release(cuda_device); }

int cuDeviceGetUuid(char *uuid, int cuda_device) {
    memset(uuid, 0x5a, 15);
    uuid[15] = (char)board_of(cuda_device);
    return OK;
}
#endif
