/*
 * The plugin's protocol. Each frame is one datagram on a Unix socket that the recorder has bound. Datagrams arrive
 * whole and in sending order across all processes, and a sender blocks while the queue is full. So processes need no
 * lock, and a killed process leaves no partial frame.
 *
 * The program may close or replace any descriptor, including the plugin's. So before each frame the plugin checks
 * that the descriptor is still its socket, and otherwise opens another.
 *
 * crates/tool/record/src/wire.rs reads the frames and documents every kind.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum kind {
    START = 1,
    MAP,
    ACCESSES,
    FETCHES,
    UNMAP,
    REMAP,
    BREAK,
    ADVISE,
    PROTECT,
    FORKING,
    FORKED,
    FORK_FAILED,
    EXIT,
    FOREIGN,
    THREAD,
};

/* Header of a frame, little-endian like every machine that runs this plugin. */
struct head {
    uint32_t magic;
    uint32_t kind;
    uint32_t pid;
    uint32_t tid;
    /* Number of instructions of the process since its last frame with a count. */
    uint64_t instructions;
};

#define MAGIC 0x31525053u /* "SPR1" */

/* Flags of a mapping. */
enum { SHARED = 1, OF_FILE = 2, HEAP = 4 };

static struct sockaddr_un recorder = {.sun_family = AF_UNIX};
static int channel = -1;
static dev_t channel_dev;
static ino_t channel_ino;
static pthread_mutex_t channel_lock = PTHREAD_MUTEX_INITIALIZER;

/* The recorder has closed its socket: the recording has ended, and the program continues. */
static volatile bool disconnected;

static bool channel_is_ours(void) {
    struct stat now;
    return channel >= 0 && fstat(channel, &now) == 0 && now.st_dev == channel_dev && now.st_ino == channel_ino;
}

/* Opens the socket with a high descriptor number, because programs expect to get the lowest free
 * numbers. */
static bool channel_open(void) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int high = -1;
    for (int from = 1000; high < 0 && from >= 60; from /= 2)
        high = fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    struct stat now;
    int room = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (fstat(fd, &now) != 0 || connect(fd, (struct sockaddr *)&recorder, sizeof recorder) != 0) {
        close(fd);
        return false;
    }
    channel = fd;
    channel_dev = now.st_dev;
    channel_ino = now.st_ino;
    return true;
}

static void send_frame(enum kind kind, uint64_t instructions, const void *body, size_t bytes) {
    if (disconnected)
        return;
    struct head head = {MAGIC, kind, (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), instructions};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    pthread_mutex_lock(&channel_lock);
    int saved = errno;
    if (channel_is_ours() || channel_open()) {
        while (sendmsg(channel, &message, MSG_NOSIGNAL) < 0)
            if (errno != EINTR && errno != ENOBUFS) {
                disconnected = true;
                break;
            }
    } else {
        disconnected = true;
    }
    errno = saved;
    pthread_mutex_unlock(&channel_lock);
}
