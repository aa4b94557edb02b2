/*
 * Following exec. QEMU would execute the new program natively and unrecorded, so the plugin executes QEMU with this
 * plugin and the new program. It leaves the call to QEMU if that would change the program's behaviour: for programs
 * of another architecture, programs that gain privileges, and files that cannot be executed (the caller must get its
 * own error).
 */

/* Start of the recorder's command line: qemu -plugin OPTIONS. */
static char command_line[8192];
static char *prefix[3];
static bool follow;
static uint64_t guest_base;

/* Maximum number of arguments. */
#define ARGUMENTS 4096

static bool command_line_read(void) {
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, command_line, sizeof command_line - 1);
    if (fd >= 0)
        close(fd);
    char *at = command_line, *end = command_line + (bytes > 0 ? bytes : 0);
    for (int i = 0; i < 3; i++) {
        if (at >= end)
            return false;
        prefix[i] = at;
        at += strlen(at) + 1;
    }
    return prefix[0][0] == '/' && strcmp(prefix[1], "-plugin") == 0 && at <= end;
}

/* Copies guest memory. Returns false if it is not mapped; the program's own call then fails. */
static bool guest_read(void *to, uint64_t from, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)(from + guest_base), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

static bool guest_text(char *to, size_t room, uint64_t from) {
    for (size_t at = 0; at < room; at++) {
        if (!guest_read(to + at, from + at, 1))
            return false;
        if (!to[at])
            return true;
    }
    return false;
}

static bool executable(const char *path) {
    struct stat file;
    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0 &&
           !(file.st_mode & (S_ISUID | S_ISGID));
}

static ssize_t beginning(const char *path, char *to, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, to, room);
    if (fd >= 0)
        close(fd);
    return bytes;
}

/* Checks for a 64-bit little-endian ELF file for x86-64 (System V ABI, ELF header: class, data, machine). */
static bool is_ours(const char *start, ssize_t bytes) {
    return bytes >= 20 && memcmp(start, "\177ELF\2\1", 6) == 0 && start[18] == 62 && start[19] == 0;
}

/* Executes `path` under QEMU. Returns only if the program cannot be recorded or exec fails. */
static void exec_recorded(uint64_t path_at, uint64_t arguments_at, uint64_t environment_at) {
    static char path[4096], start[256], script[4096];
    static uint64_t given[ARGUMENTS];
    static char *made[ARGUMENTS + 16];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!follow || disconnected || guest_base || !guest_text(path, sizeof path, path_at))
        return;
    if (strcmp(path, "/proc/self/exe") == 0 && qemu_plugin_path_to_binary())
        snprintf(path, sizeof path, "%s", qemu_plugin_path_to_binary());
    size_t count = 0;
    do
        if (count == ARGUMENTS || !guest_read(&given[count], arguments_at + 8 * count, 8))
            return;
    while (given[count++]);
    count--;
    if (!executable(path))
        return;
    ssize_t bytes = beginning(path, start, sizeof start - 1);
    char *interpreter = NULL, *option = NULL;
    if (bytes > 2 && memcmp(start, "#!", 2) == 0) {
        /* Like the kernel, take the interpreter and the rest of the line as one argument. */
        start[bytes] = 0;
        char *end = strchr(start, '\n');
        if (!end)
            return;
        *end = 0;
        interpreter = start + 2 + strspn(start + 2, " \t");
        option = interpreter + strcspn(interpreter, " \t");
        if (*option) {
            *option++ = 0;
            option += strspn(option, " \t");
        }
        for (char *last = option + strlen(option); last > option && (last[-1] == ' ' || last[-1] == '\t');)
            *--last = 0;
        char its[64];
        snprintf(script, sizeof script, "%s", path);
        if (!executable(interpreter) || !is_ours(its, beginning(interpreter, its, sizeof its)))
            return;
    } else if (!is_ours(start, bytes)) {
        return;
    }
    pthread_mutex_lock(&lock);
    size_t at = 0;
    for (int i = 0; i < 3; i++)
        made[at++] = prefix[i];
    made[at++] = "-0";
    if (interpreter) {
        made[at++] = interpreter;
        made[at++] = interpreter;
        if (*option)
            made[at++] = option;
        made[at++] = script;
    } else {
        made[at++] = count ? (char *)given[0] : path;
        made[at++] = path;
    }
    for (size_t i = 1; i < count; i++)
        made[at++] = (char *)given[i];
    made[at] = NULL;
    threads_send();
    execve(prefix[0], made, (char **)environment_at);
    pthread_mutex_unlock(&lock);
}
