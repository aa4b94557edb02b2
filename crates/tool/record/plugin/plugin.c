/*
 * superpage's recorder: a plugin for qemu-user that records which pages the program accesses, and its memory system
 * calls. crates/tool/record/src/plugin.rs builds it, `qemu-x86_64 -plugin` loads it, and it connects to
 * crates/tool/record/src/session.rs.
 *
 * Life cycle: qemu_plugin_install runs before the program is loaded, and sends START. The first translation of a
 * block is the earliest time at which the program is loaded; then the plugin sends the program's mappings. Accesses,
 * calls and EXIT follow.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>

#include "qemu.h"
#include "wire.h"
#include "filter.h"
#include "exec.h"
#include "calls.h"

EXPORT int qemu_plugin_version = 1;

/* QEMU's lowest mapping before the program is loaded. Later, all lower mappings belong to the program: QEMU loads
 * programs from 0x400000 or 0x4000000000 on, and the kernel places QEMU itself at higher addresses. */
static uint64_t qemu_start = UINT64_MAX;

typedef void (*mapping_cb)(uint64_t begin, uint64_t end, const char *rights, uint64_t offset, uint64_t file);

static void each_mapping(mapping_cb what) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return;
    char line[8192], rights[8];
    uint64_t begin, end, offset, inode;
    unsigned major, minor;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64, &begin, &end, rights,
                   &offset, &major, &minor, &inode) == 7)
            what(begin, end, rights, offset, inode ? (inode ^ (uint64_t)(major << 8 | minor) << 40) | 1 : 0);
    fclose(maps);
}

static void lowest(uint64_t begin, uint64_t end, const char *rights, uint64_t offset, uint64_t file) {
    (void)end, (void)rights, (void)offset, (void)file;
    if (begin < qemu_start)
        qemu_start = begin;
}

static void report_mapping(uint64_t begin, uint64_t end, const char *rights, uint64_t offset, uint64_t file) {
    if (begin >= qemu_start || begin < guest_base)
        return;
    uint64_t protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0);
    uint64_t what = (rights[3] == 's' ? SHARED : 0) | (file ? OF_FILE : 0);
    SEND_EVENT(MAP, begin - guest_base, end - begin, protection, what, file, offset);
}

static void report_mappings(struct qemu_plugin_insn *instruction) {
    uint64_t here = (uint64_t)qemu_plugin_insn_haddr(instruction);
    guest_base = here ? here - qemu_plugin_insn_vaddr(instruction) : 0;
    each_mapping(report_mapping);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    static bool reported;
    size_t count = qemu_plugin_tb_n_insns(block);
    if (disconnected || !count)
        return;
    if (!reported) {
        reported = true;
        report_mappings(qemu_plugin_tb_get_insn(block, 0));
    }
    for (size_t i = 0; i < count; i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_access,
                                         QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    if (!parallel && !fetches) {
        qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &inline_count, count);
        return;
    }
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(block, 0);
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(block, count - 1);
    /* This memory is never freed, because QEMU does not report when it discards a block. */
    struct block *block_data = malloc(sizeof *block_data);
    if (!block_data)
        return;
    block_data->instructions = count;
    block_data->first = qemu_plugin_insn_vaddr(first) >> PAGE_BITS;
    block_data->last = (qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - 1) >> PAGE_BITS;
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, QEMU_PLUGIN_CB_NO_REGS, block_data);
}

static uint64_t number_of(const char *text) {
    return strtoull(text, NULL, 10);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    if (info->system_emulation || strcmp(info->target_name, "x86_64") != 0)
        return 1;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 1;
        *value++ = 0;
        if (strcmp(argv[i], "socket") == 0)
            snprintf(recorder.sun_path, sizeof recorder.sun_path, "%s", value);
        else if (strcmp(argv[i], "base") == 0)
            base_classes = number_of(value);
        else if (strcmp(argv[i], "superpage") == 0)
            region_classes = number_of(value);
        else if (strcmp(argv[i], "every") == 0)
            every = number_of(value);
        else if (strcmp(argv[i], "fetches") == 0)
            fetches = number_of(value);
        else if (strcmp(argv[i], "follow") == 0)
            follow = number_of(value);
        else
            return 1;
    }
    if (base_classes > CLASSES || region_classes > CLASSES || !base_classes != !region_classes)
        return 1;
    follow = follow && command_line_read();
    each_mapping(lowest);
    send_frame(START, 0, NULL, 0);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    return disconnected;
}
