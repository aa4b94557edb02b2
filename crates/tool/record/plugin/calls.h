/*
 * Reports system calls that change the address space or create and end processes. A thread sends its accesses before
 * every call, so that they come before the accesses of threads that the call wakes up.
 */
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>

static uint64_t heap_end;

static void send_event(enum kind kind, const uint64_t *fields, size_t count) {
    send_frame(kind, 0, fields, count * sizeof *fields);
}
#define SEND_EVENT(kind, ...) \
    send_event(kind, (uint64_t[]){__VA_ARGS__}, sizeof(uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

/* Identifies a file by one number, mixed from inode and device. 0: no file. */
static uint64_t file_number(int fd) {
    struct stat file;
    if (fd < 0 || fstat(fd, &file) != 0)
        return 0;
    return (file.st_ino ^ (uint64_t)file.st_dev << 40) | 1;
}

static bool makes_process(int64_t number, const uint64_t *a) {
    /* QEMU implements vfork as fork. */
    return number == SYS_fork || number == SYS_vfork ||
           (number == SYS_clone && (!(a[0] & CLONE_VM) || a[0] & CLONE_VFORK));
}

static void on_call(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2,
                    uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)vcpu, (void)a7, (void)a8;
    if (disconnected)
        return;
    struct thread *t = thread_self();
    memcpy(t->call, (uint64_t[]){a1, a2, a3, a4, a5, a6}, sizeof t->call);
    thread_send(t);
    switch (number) {
    case SYS_munmap:
        /* Send before the call, because afterwards another thread may get the addresses. */
        SEND_EVENT(UNMAP, a1, a2);
        break;
    case SYS_shmdt:
        SEND_EVENT(UNMAP, a1, 0);
        break;
    case SYS_execve: {
        exec_recorded(a1, a2, a3);
        char path[512];
        if (guest_text(path, sizeof path, a1) && access(path, X_OK) == 0)
            send_frame(FOREIGN, instructions_take(t), path, strlen(path));
        break;
    }
    case SYS_exit:
        thread_end();
        break;
    case SYS_exit_group:
        threads_send();
        send_frame(EXIT, instructions_take(t), NULL, 0);
        break;
    default:
        if (makes_process(number, t->call)) {
            /* Name of the child until it sends its own frames: fork counter and thread id. */
            static uint32_t forks;
            uint64_t made = __atomic_add_fetch(&forks, 1, __ATOMIC_RELAXED);
            t->call[5] = made << 32 | (uint32_t)syscall(SYS_gettid);
            SEND_EVENT(FORKING, t->call[5]);
        } else if (number == SYS_clone) {
            /* When a second thread starts, QEMU retranslates all code. From now on each thread counts its own
             * instructions. */
            parallel = true;
            SEND_EVENT(THREAD, 0);
        }
    }
}

static void on_mapped(const uint64_t *a, uint64_t at) {
    int flags = (int)a[3];
    bool anonymous = flags & MAP_ANONYMOUS;
    uint64_t file = anonymous ? 0 : file_number((int)a[4]);
    uint64_t what = (flags & MAP_SHARED ? SHARED : 0) | (file ? OF_FILE : 0);
    SEND_EVENT(MAP, at, a[1], a[2], what, file, anonymous ? 0 : a[5]);
}

static void on_attached(int segment, uint64_t at) {
    struct shmid_ds of;
    if (shmctl(segment, IPC_STAT, &of) == 0)
        SEND_EVENT(MAP, at, of.shm_segsz, PROT_READ | PROT_WRITE, SHARED, (uint64_t)segment << 1 | 1, 0);
}

static void on_return(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, int64_t result) {
    (void)id, (void)vcpu;
    if (disconnected || !self)
        return;
    const uint64_t *a = self->call;
    /* The kernel returns errors as -1 to -4095. */
    bool failed = result < 0 && result >= -4095;
    uint64_t at = (uint64_t)result;
    if (makes_process(number, a)) {
        uint64_t name = a[5];
        if (failed) {
            SEND_EVENT(FORK_FAILED, name);
        } else if (result == 0) {
            threads_forked();
            SEND_EVENT(FORKED, name);
        }
        return;
    }
    if (failed)
        return;
    switch (number) {
    case SYS_mmap:
        on_mapped(a, at);
        break;
    case SYS_mremap:
        SEND_EVENT(REMAP, a[0], a[1], at, a[2], a[3]);
        break;
    case SYS_brk:
        if (heap_end && at != heap_end)
            SEND_EVENT(BREAK, heap_end, at);
        heap_end = at;
        break;
    case SYS_madvise:
        SEND_EVENT(ADVISE, a[0], a[1], a[2]);
        break;
    case SYS_mprotect:
        SEND_EVENT(PROTECT, a[0], a[1], a[2]);
        break;
    case SYS_shmat:
        on_attached((int)a[0], at);
        break;
    }
}
