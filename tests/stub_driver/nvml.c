/* A stub of libnvidia-ml.so.1: the functions that a node agent calls, answered from a recording.
 * With -DOLD_DRIVER it lacks what a driver of 2019 lacks. */
#include "board.h"

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, TOO_SMALL = 7, NOT_LOADED = 9, TIMED_OUT = 10,
       LOST = 15, MISMATCH = 18 };
#define INTRUDER 4242
#define HIDDEN_MIB 3072

typedef struct board *device;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long used; unsigned instance, compute_instance; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct field { unsigned id, scope; long long at, latency; unsigned type, answer; union { double d; unsigned u; } value; };
struct temperature { unsigned version; int sensor, celsius; };

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (fault("not_loaded", NULL)) return NOT_LOADED;
    if (fault("no_permission", NULL)) return NO_PERMISSION;
    if (fault("mismatch", NULL)) return MISMATCH;
    return OK;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) { (void)code; return "error of the stub"; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    snprintf(version, size, "%s", "580.65.06");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) { *count = board_count(); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) {
    if (index >= (unsigned)board_count()) return INVALID;
    *found = boards() + index;
    return OK;
}

int nvmlDeviceGetUUID(device which, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a0%d", (int)(which - boards()));
    return OK;
}

int nvmlDeviceGetName(device which, char *name, unsigned size) {
    const char *given = getenv("WATTKEEPER_STUB_NAME");
    (void)which;
    snprintf(name, size, "%s", given ? given : "NVIDIA Stub");
    return OK;
}

int nvmlDeviceGetPciInfo_v3(device which, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 1 + (which - boards());
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return OK;
}

/* A reading begins with the power: here the rows move on. */
int nvmlDeviceGetPowerUsage(device which, unsigned *milliwatts) {
    which->readings++;
    if (fault("lost", which)) return LOST;
    if (fault("no_power", which)) return NOT_SUPPORTED;
    if (fault("power_denied", which)) return NO_PERMISSION;
    *milliwatts = row_now(which, 1).power;
    if (fault("power_timeout", which)) return TIMED_OUT;
    if (fault("garbled_power", which)) *milliwatts = 4294967295u;
    return OK;
}

int nvmlDeviceGetPowerManagementLimit(device which, unsigned *milliwatts) {
    *milliwatts = row_now(which, 0).limit;
    return OK;
}

int nvmlDeviceGetClockInfo(device which, int kind, unsigned *megahertz) {
    struct row now = row_now(which, 0);
    *megahertz = kind == 1 ? now.sm : now.memory_clock;
    return OK;
}

int nvmlDeviceGetTemperature(device which, int sensor, unsigned *celsius) {
    (void)sensor;
    *celsius = row_now(which, 0).celsius;
    return OK;
}

int nvmlDeviceGetUtilizationRates(device which, struct utilization *found) {
    found->gpu = fault("busy", which) ? 37 : fault("garbled_util", which) ? 808334905u : 0;
    found->memory = 0;
    return OK;
}

static long hidden(device which) { return fault("hidden", which) ? HIDDEN_MIB : 0; }

int nvmlDeviceGetMemoryInfo(device which, struct memory *found) {
    struct row now = row_now(which, 0);
    if (fault("blind", which)) return NOT_SUPPORTED;
    found->total = (unsigned long long)now.total << 20;
    found->used = (unsigned long long)(now.used + hidden(which)) << 20;
    found->free = found->total - found->used;
    return OK;
}

#ifndef OLD_DRIVER
static int list_processes(device which, unsigned *count, struct process *found) {
    unsigned listed = 0, room = *count;
    int host = fault("host_pids", which) ? 1000000 : 0;
    if (fault("blind", which) || fault("no_list", which)) return NOT_SUPPORTED;
    holder_of(which, 0);
    for (int i = 0; i < MOST_HOLDERS; i++) {
        if (!which->holders[i].contexts) continue;
        if (listed < room && found) found[listed].pid = which->holders[i].pid + host;
        listed++;
    }
    if (fault("intruder", which)) {
        if (listed < room && found) found[listed].pid = INTRUDER;
        listed++;
    }
    *count = listed;
    return listed > room || (listed && !found) ? TOO_SMALL : OK;
}

int nvmlDeviceGetMemoryInfo_v2(device which, struct memory_v2 *found) {
    struct row now = row_now(which, 0);
    if (fault("blind", which)) return NOT_SUPPORTED;
    found->total = (unsigned long long)now.total << 20;
    found->used = (unsigned long long)(now.used + hidden(which)) << 20;
    found->free = (unsigned long long)(now.free - hidden(which)) << 20;
    found->reserved = found->total - found->used - found->free;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device which, unsigned *count, struct process *found) {
    return list_processes(which, count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device which, unsigned *count, struct process *found) {
    (void)which, (void)found;
    *count = 0;
    return OK;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device which, unsigned *count, struct process *found) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(which, count, found);
}

int nvmlDeviceGetTotalEnergyConsumption(device which, unsigned long long *millijoules) {
    *millijoules = 1000ull * which->readings;
    return OK;
}

int nvmlDeviceGetFieldValues(device which, int count, struct field *fields) {
    long celsius = row_now(which, 0).memory_celsius;
    for (int i = 0; i < count; i++) {
        fields[i].answer = celsius < 0 ? NOT_SUPPORTED : OK;
        fields[i].type = 1;
        fields[i].value.u = celsius;
    }
    return OK;
}

int nvmlDeviceGetTemperatureV(device which, struct temperature *found) {
    found->celsius = row_now(which, 0).celsius;
    return OK;
}

int nvmlDeviceGetMigMode(device which, unsigned *now, unsigned *later) {
    *now = *later = fault("mig", which);
    return OK;
}
#endif
