/* Each misuse of shared memory, of procedures and of a fork has its code, and leaves no error for a
 * sanitizer.
 *
 *     pool_sharing NODE0 NODE1 NODE-WITH-TOKEN NODE3 TOKEN-FILE WORDS ORDERS
 *
 * WORDS is a text of three words on NODE3, that may be read.
 */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void wrong_calls(farcore_pool *pool, farcore_pool *other_pool) {
    struct {
        uint64_t first, last;
    } range = {1, 100};
    static char long_argument[40000];
    uint64_t sum = 0;
    farcore_value answer;
    farcore_ptr ptr, null = {0};
    farcore_operation *call = (farcore_operation *)&wrong;
    EXPECT(farcore_pool_call(pool, 1, "sum", &range, sizeof range, &answer), FARCORE_OK, "");
    HOLDS(answer.length == sizeof sum);
    memcpy(&sum, answer.bytes, sizeof sum);
    HOLDS(sum == 5050);
    farcore_value_free(&answer);
    EXPECT(farcore_pool_call(pool, 0, "sum", &range, sizeof range, NULL), FARCORE_OK, "");
    EXPECT(farcore_pool_call(pool, 0, "echo", NULL, 0, &answer), FARCORE_OK, "");
    HOLDS(answer.bytes != NULL && answer.length == 0);
    farcore_value_free(&answer);
    EXPECT(farcore_pool_call(NULL, 0, "sum", &range, sizeof range, &answer),
           FARCORE_INVALID_ARGUMENT, "`pool` is null");
    HOLDS(answer.bytes == NULL && answer.capacity == 0);
    EXPECT(farcore_pool_call(pool, 0, NULL, &range, sizeof range, &answer),
           FARCORE_INVALID_ARGUMENT, "`procedure` is null");
    EXPECT(farcore_pool_call(pool, 0, "\xff", &range, sizeof range, &answer),
           FARCORE_INVALID_ARGUMENT, "UTF-8");
    EXPECT(farcore_pool_call(pool, 0, "sum", NULL, 8, &answer), FARCORE_INVALID_ARGUMENT,
           "`argument` is null");
    EXPECT(farcore_pool_call(pool, 0, "sum", &range, (size_t)-1, &answer),
           FARCORE_INVALID_ARGUMENT, "negative number");
    EXPECT(farcore_pool_call(pool, 2, "sum", &range, sizeof range, &answer), FARCORE_NO_NODE,
           "node 2");
    EXPECT(farcore_pool_call(pool, 0, "", &range, sizeof range, &answer), FARCORE_PROCEDURE,
           "no procedure of this name");
    EXPECT(farcore_pool_call(pool, 0, "sum", &range, 8, &answer), FARCORE_PROCEDURE,
           "8 bytes, 16 are expected");
    EXPECT(farcore_pool_call(pool, 0, "echo", long_argument, sizeof long_argument, &answer),
           FARCORE_PROCEDURE, "40000 bytes: at most 32768");

    EXPECT(farcore_pool_allocate(pool, 3, 1, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, ptr, "HAL", 3), FARCORE_OK, "");
    EXPECT(farcore_pool_call_on(pool, ptr, "add", "\1", 1, NULL), FARCORE_OK, "");
    char bytes[3];
    EXPECT(farcore_pool_read(pool, ptr, bytes, 3), FARCORE_OK, "");
    HOLDS(memcmp(bytes, "IBM", 3) == 0);
    EXPECT(farcore_pool_call_on(pool, null, "add", "\1", 1, NULL), FARCORE_INVALID_ARGUMENT,
           "the pointer is null");
    EXPECT(farcore_pool_call_on(pool, farcore_ptr_add(ptr, 1), "add", "\1", 1, NULL),
           FARCORE_INVALID_ARGUMENT, "byte 1 of its allocation");
    EXPECT(farcore_pool_call_on(other_pool, ptr, "add", "\1", 1, NULL), FARCORE_FOREIGN, "export");
    EXPECT(farcore_pool_call_on(pool, ptr, "add", NULL, 0, NULL), FARCORE_PROCEDURE,
           "1 is expected");
    EXPECT(farcore_pool_submit_call(NULL, 0, "sum", &range, sizeof range, &call),
           FARCORE_INVALID_ARGUMENT, "`pool` is null");
    HOLDS(call == NULL);
    EXPECT(farcore_pool_submit_call(pool, 0, "sum", &range, sizeof range, &call), FARCORE_OK, "");
    EXPECT(farcore_wait(call, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_value(call, &answer), FARCORE_OK, "");
    HOLDS(answer.length == 8 && memcmp(answer.bytes, &sum, 8) == 0);
    farcore_value_free(&answer);
    farcore_operation_free(call);
    /* The memory is freed while the call is under way, which still ends. */
    EXPECT(farcore_pool_submit_call_on(pool, ptr, "add", "\1", 1, &call), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
    EXPECT(farcore_wait(call, FARCORE_NO_LIMIT), FARCORE_OK, "");
    farcore_operation_free(call);
    EXPECT(farcore_pool_submit_call_on(pool, ptr, "add", "\1", 1, &call), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_call_on(pool, ptr, "add", "\1", 1, NULL), FARCORE_FREED, "freed");
}

static void wrong_shares(farcore_pool *pool, farcore_pool *other_pool, char **arguments) {
    farcore_ptr own, shared, null = {0};
    farcore_value text, again;
    farcore_type words, three = {1, 3}, none = {1, 0};
    EXPECT(farcore_type_of(NULL, NULL, 0, 8, &words), FARCORE_INVALID_ARGUMENT, "`name` is null");
    EXPECT(farcore_type_of("u64", NULL, 1, 8, &words), FARCORE_INVALID_ARGUMENT, "`parts` is null");
    EXPECT(farcore_type_of("u64", NULL, 0, 0, &words), FARCORE_INVALID_ARGUMENT, "0 bytes");
    EXPECT(farcore_type_of("u64", NULL, 0, 8, NULL), FARCORE_INVALID_ARGUMENT, "`holds` is null");
    EXPECT(farcore_type_of("u64", NULL, 0, 8, &words), FARCORE_OK, "");
    EXPECT(farcore_pool_allocate(pool, 64, 8, NULL, &own), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, own, "12345678", 8), FARCORE_OK, "");
    EXPECT(farcore_pool_export(pool, null, NULL, true, &text), FARCORE_INVALID_ARGUMENT, "null");
    EXPECT(farcore_pool_export(pool, own, NULL, true, NULL), FARCORE_INVALID_ARGUMENT,
           "`text` is null");
    EXPECT(farcore_pool_export(pool, farcore_ptr_add(own, 8), NULL, true, &text),
           FARCORE_INVALID_ARGUMENT, "byte 8");
    EXPECT(farcore_pool_export(pool, own, &none, true, &text), FARCORE_INVALID_ARGUMENT, "0 bytes");
    EXPECT(farcore_pool_export(pool, own, &three, true, &text), FARCORE_WRONG_TYPE,
           "values of 3 bytes");
    HOLDS(text.bytes == NULL && text.length == 0);
    EXPECT(farcore_pool_export(other_pool, own, NULL, true, &text), FARCORE_FOREIGN, "export it");

    EXPECT(farcore_pool_export(pool, own, NULL, false, &text), FARCORE_OK, "");
    const char *exported = (const char *)text.bytes;
    HOLDS(strlen(exported) == text.length);
    EXPECT(farcore_pool_import(other_pool, NULL, NULL, &shared), FARCORE_INVALID_ARGUMENT,
           "`text` is null");
    EXPECT(farcore_pool_import(other_pool, exported, NULL, NULL), FARCORE_INVALID_ARGUMENT,
           "`ptr` is null");
    EXPECT(farcore_pool_import(other_pool, "no pointer", NULL, &shared), FARCORE_MALFORMED,
           "no exported pointer");
    EXPECT(farcore_pool_import(other_pool, "", NULL, &shared), FARCORE_MALFORMED, "cut short");
    char cut[2048];
    snprintf(cut, sizeof cut, "%.*s", (int)text.length - 4, exported);
    EXPECT(farcore_pool_import(other_pool, cut, NULL, &shared), FARCORE_MALFORMED,
           "no exported pointer");
    EXPECT(farcore_pool_import(other_pool, exported, &words, &shared), FARCORE_WRONG_TYPE, "mark");
    EXPECT(farcore_pool_import(other_pool, arguments[5], NULL, &shared), FARCORE_WRONG_TYPE,
           "mark");
    EXPECT(farcore_pool_import(other_pool, arguments[5], &words, &shared), FARCORE_OTHER_NODE,
           "name all nodes");
    HOLDS(farcore_ptr_is_null(shared));
    EXPECT(farcore_pool_import(other_pool, exported, NULL, &shared), FARCORE_OK, "");
    char bytes[8];
    uint64_t old;
    EXPECT(farcore_pool_read(other_pool, shared, bytes, 8), FARCORE_OK, "");
    HOLDS(memcmp(bytes, "12345678", 8) == 0);
    EXPECT(farcore_pool_write(other_pool, shared, bytes, 8), FARCORE_READ_ONLY, "read only");
    EXPECT(farcore_pool_fetch_add(other_pool, shared, 1, &old), FARCORE_READ_ONLY, "read only");
    EXPECT(farcore_pool_export(other_pool, shared, NULL, true, &again), FARCORE_GONE, "imported");
    EXPECT(farcore_pool_transfer(other_pool, shared, NULL, &again), FARCORE_GONE, "imported");
    /* What cannot be given away stays. */
    EXPECT(farcore_pool_read(other_pool, shared, bytes, 8), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(other_pool, shared), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, own), FARCORE_OK, "");
    farcore_value_free(&text);
}

static void wrong_transfers(farcore_pool *pool, farcore_pool *other_pool) {
    farcore_ptr own, shared;
    farcore_value text;
    farcore_type words, three = {1, 3};
    char bytes[8];
    EXPECT(farcore_type_of("u64", NULL, 0, 8, &words), FARCORE_OK, "");
    EXPECT(farcore_pool_allocate(pool, 64, 8, NULL, &own), FARCORE_OK, "");
    EXPECT(farcore_pool_transfer(pool, own, &three, &text), FARCORE_WRONG_TYPE, "3 bytes");
    EXPECT(farcore_pool_transfer(pool, own, &words, &text), FARCORE_OK, "");
    EXPECT(farcore_pool_read(pool, own, bytes, 8), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_deallocate(pool, own), FARCORE_FREED, "freed");
    const char *exported = (const char *)text.bytes;
    farcore_operation *import = NULL;
    EXPECT(farcore_pool_submit_import(other_pool, exported, NULL, &import), FARCORE_WRONG_TYPE,
           "mark");
    EXPECT(farcore_pool_submit_import(other_pool, exported, &words, &import), FARCORE_OK, "");
    EXPECT(farcore_wait(import, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_ptr(import, &shared), FARCORE_OK, "");
    farcore_operation_free(import);
    EXPECT(farcore_pool_import(pool, exported, &words, &own), FARCORE_GONE, "taken");
    EXPECT(farcore_pool_deallocate(other_pool, shared), FARCORE_OK, "");
    farcore_value_free(&text);
}

/* A child cannot use what its parent has made, nor harm it, and connects by itself. */
static void forked(farcore_pool *pool, const char *const *nodes) {
    farcore_ptr ptr;
    farcore_operation *read = NULL;
    uint64_t word = 7, old = 0;
    int status = -1;
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, ptr, &word, 8), FARCORE_OK, "");
    EXPECT(farcore_pool_submit_read(pool, ptr, 8, &read), FARCORE_OK, "");
    const pid_t child = fork();
    if (child == 0) {
        EXPECT(farcore_pool_read(pool, ptr, &word, 8), FARCORE_CLOSED, "connect in the child");
        EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_CLOSED, "connect in the child");
        EXPECT(farcore_poll(read), FARCORE_CLOSED, "connect in the child");
        EXPECT(farcore_pool_close(pool), FARCORE_OK, "");
        farcore_operation_free(read);
        farcore_pool_free(pool);
        EXPECT(farcore_pool_connect(nodes, 2, NULL, &pool), FARCORE_OK, "");
        EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &ptr), FARCORE_OK, "");
        EXPECT(farcore_pool_write(pool, ptr, "child...", 8), FARCORE_OK, "");
        farcore_pool_free(pool);
        _exit(wrong);
    }
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(farcore_wait(read, FARCORE_NO_LIMIT), FARCORE_OK, "");
    farcore_operation_free(read);
    EXPECT(farcore_pool_fetch_add(pool, ptr, 1, &old), FARCORE_OK, "");
    HOLDS(old == 7);
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
}

/* Words of a program in Rust. */
static void words_of_rust(char **arguments) {
    const char *const *node = (const char *const *)(arguments + 3);
    farcore_pool *pool = NULL;
    farcore_type words;
    farcore_ptr shared;
    uint64_t found[3] = {0};
    EXPECT(farcore_pool_connect(node, 1, NULL, &pool), FARCORE_OK, "");
    EXPECT(farcore_type_of("u64", NULL, 0, 8, &words), FARCORE_OK, "");
    EXPECT(farcore_pool_import(pool, arguments[5], &words, &shared), FARCORE_OK, "");
    EXPECT(farcore_pool_read(pool, shared, found, sizeof found), FARCORE_OK, "");
    HOLDS(found[0] == 7 && found[1] == 8 && found[2] == 9);
    EXPECT(farcore_pool_write(pool, shared, found, 8), FARCORE_READ_ONLY, "read only");
    farcore_pool_free(pool);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: pool_sharing NODE0 NODE1 NODE2 NODE3 TOKEN-FILE WORDS ORDERS\n");
        return 2;
    }
    char **arguments = argv + 1;
    const char *const *nodes = (const char *const *)arguments;
    farcore_pool *pool = NULL, *other = NULL;
    EXPECT(farcore_pool_connect(nodes, 2, NULL, &pool), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 2, NULL, &other), FARCORE_OK, "");
    if (pool == NULL || other == NULL) {
        return 1;
    }
    wrong_calls(pool, other);
    wrong_shares(pool, other, arguments);
    wrong_transfers(pool, other);
    forked(pool, nodes);
    farcore_pool_free(other);
    farcore_pool_free(pool);
    words_of_rust(arguments);
    printf("%d of %d wrong\n", wrong, checked);
    return wrong == 0 ? 0 : 1;
}
