/* Each misuse of a pool has its code, and leaves no error for a sanitizer.
 *
 *     pool_misuse NODE0 NODE1 NODE-WITH-TOKEN NODE3 TOKEN-FILE WORDS ORDERS
 *
 * The lines `stop 0` and `start 0` of its output have a node stopped, and started again at its
 * address; each is answered by a line.
 */
#include "expect.h"
#include <stdlib.h>

/* Has a node stopped or started. */
static void conduct(const char *what, int node) {
    char answer[16];
    printf("%s %d\n", what, node);
    fflush(stdout);
    if (fgets(answer, sizeof answer, stdin) == NULL) {
        fprintf(stderr, "no answer to %s %d\n", what, node);
        exit(1);
    }
}

static void wrong_options(void) {
    farcore_pool_options *options = farcore_pool_options_new();
    EXPECT(farcore_pool_options_set_depth(NULL, 1), FARCORE_INVALID_ARGUMENT, "`options` is null");
    EXPECT(farcore_pool_options_set_token(options, NULL, 20), FARCORE_INVALID_ARGUMENT,
           "`token` is null");
    EXPECT(farcore_pool_options_set_token(options, "short", 5), FARCORE_INVALID_ARGUMENT,
           "5 bytes long, must be 16 to 4096");
    EXPECT(farcore_pool_options_set_token_file(options, "/nonexistent/token"),
           FARCORE_INVALID_ARGUMENT, "/nonexistent/token");
    EXPECT(farcore_pool_options_set_name(options, "\xff"), FARCORE_INVALID_ARGUMENT, "UTF-8");
    EXPECT(farcore_pool_options_set_zone(options, NULL), FARCORE_INVALID_ARGUMENT,
           "`zone` is null");
    EXPECT(farcore_pool_options_set_device(options, NULL), FARCORE_INVALID_ARGUMENT,
           "`device` is null");
    EXPECT(farcore_pool_options_set_device(options, ""), FARCORE_INVALID_ARGUMENT, "empty");
    EXPECT(farcore_pool_options_set_device(options, "mlx5_0"), FARCORE_OK, "");
    EXPECT(farcore_pool_options_set_port(options, 0), FARCORE_INVALID_ARGUMENT,
           "port is 0: must be 1");
    EXPECT(farcore_pool_options_set_port(options, 256), FARCORE_INVALID_ARGUMENT, "1 to 255");
    EXPECT(farcore_pool_options_set_port(options, 255), FARCORE_OK, "");
    EXPECT(farcore_pool_options_set_gid_index(options, 256), FARCORE_INVALID_ARGUMENT,
           "gid_index is 256: must be 0 to 255");
    EXPECT(farcore_pool_options_set_gid_index(options, 0), FARCORE_OK, "");
    farcore_pool_options_free(options);
    farcore_pool_options_free(NULL);
}

/* Connects with options that are out of range. */
static void wrong_range(const char *const *nodes, farcore_code (*set)(farcore_pool_options *),
                        const char *text) {
    farcore_pool_options *options = farcore_pool_options_new();
    farcore_pool *pool = NULL;
    EXPECT(set(options), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 1, options, &pool), FARCORE_INVALID_ARGUMENT, text);
    farcore_pool_options_free(options);
}

static farcore_code no_connections(farcore_pool_options *options) {
    return farcore_pool_options_set_connections(options, 0);
}

static farcore_code too_deep(farcore_pool_options *options) {
    return farcore_pool_options_set_depth(options, 4097);
}

static farcore_code short_transfers(farcore_pool_options *options) {
    return farcore_pool_options_set_transfer_bytes(options, 4095);
}

static farcore_code no_timeout(farcore_pool_options *options) {
    return farcore_pool_options_set_timeout_ms(options, 0);
}

static farcore_code long_silence(farcore_pool_options *options) {
    return farcore_pool_options_set_silence_ms(options, 3600001);
}

static farcore_code two_of_one(farcore_pool_options *options) {
    return farcore_pool_options_set_nodes_min(options, 2, 100);
}

static farcore_code no_zone(farcore_pool_options *options) {
    return farcore_pool_options_set_zone(options, "");
}

static void wrong_connections(char **arguments) {
    const char *const *nodes = (const char *const *)arguments;
    farcore_pool_options *options = farcore_pool_options_new();
    farcore_pool *pool = (farcore_pool *)&wrong;
    EXPECT(farcore_pool_connect(NULL, 1, NULL, &pool), FARCORE_INVALID_ARGUMENT, "`nodes` is null");
    HOLDS(pool == NULL);
    EXPECT(farcore_pool_connect(nodes, 1, NULL, NULL), FARCORE_INVALID_ARGUMENT, "`pool` is null");
    EXPECT(farcore_pool_connect(nodes, 0, NULL, &pool), FARCORE_INVALID_ARGUMENT,
           "name at least one");
    const char *null_name[] = {NULL}, *no_scheme[] = {"nowhere"}, *unnamed[] = {"=tcp://a"};
    const char *no_text[] = {"tcp://\xff"}, *unreachable[] = {"tcp://127.0.0.1:1"};
    EXPECT(farcore_pool_connect(null_name, 1, NULL, &pool), FARCORE_INVALID_ARGUMENT,
           "`node` is null");
    EXPECT(farcore_pool_connect(no_scheme, 1, NULL, &pool), FARCORE_INVALID_ARGUMENT, "no scheme");
    EXPECT(farcore_pool_connect(unnamed, 1, NULL, &pool), FARCORE_INVALID_ARGUMENT, "zone");
    EXPECT(farcore_pool_connect(no_text, 1, NULL, &pool), FARCORE_INVALID_ARGUMENT, "UTF-8");
    EXPECT(farcore_pool_options_set_nodes_min(options, 0, 50), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(unreachable, 1, options, &pool), FARCORE_UNREACHABLE,
           "127.0.0.1:1");
    EXPECT(farcore_pool_options_set_token(options, "another token of a test", 23), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 1, options, &pool), FARCORE_WRONG_TOKEN, "no token");
    EXPECT(farcore_pool_connect(nodes + 2, 1, options, &pool), FARCORE_WRONG_TOKEN, "wrong token");
    EXPECT(farcore_pool_connect(nodes + 2, 1, NULL, &pool), FARCORE_WRONG_TOKEN,
           "requires a token");
    EXPECT(farcore_pool_options_set_token_file(options, arguments[4]), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes + 2, 1, options, &pool), FARCORE_OK, "");
    farcore_pool_free(pool);
    farcore_pool_options_free(options);
    wrong_range(nodes, no_connections, "connections is 0: must be 1 to 16");
    wrong_range(nodes, too_deep, "depth is 4097: must be 1 to 4096");
    wrong_range(nodes, short_transfers, "transfer_bytes is 4095");
    wrong_range(nodes, no_timeout, "timeout is 0ns: must be 1 ms to 1 hour");
    wrong_range(nodes, long_silence, "silence is");
    wrong_range(nodes, two_of_one, "nodes_min is 2");
    wrong_range(nodes, no_zone, "zone is ``");
    const char *twice[] = {nodes[0], nodes[1], nodes[0]};
    EXPECT(farcore_pool_connect(twice, 3, NULL, &pool), FARCORE_INVALID_ARGUMENT, "named once");
    EXPECT(farcore_pool_embedded(1, NULL), FARCORE_INVALID_ARGUMENT, "`pool` is null");
    EXPECT(farcore_pool_embedded(UINT64_MAX, &pool), FARCORE_CANNOT_START, "the limit is");
    farcore_pool_free(NULL);
    EXPECT(farcore_pool_close(NULL), FARCORE_INVALID_ARGUMENT, "`pool` is null");
}

static void wrong_allocations(farcore_pool *pool) {
    farcore_ptr ptr = {1, 2, 3, 4};
    farcore_place place = {.placement = 5};
    EXPECT(farcore_pool_allocate(NULL, 8, 8, NULL, &ptr), FARCORE_INVALID_ARGUMENT,
           "`pool` is null");
    HOLDS(farcore_ptr_is_null(ptr));
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, NULL), FARCORE_INVALID_ARGUMENT,
           "`ptr` is null");
    EXPECT(farcore_pool_allocate(pool, 8, 24, NULL, &ptr), FARCORE_INVALID_ARGUMENT,
           "align is 24: must be a power of two");
    EXPECT(farcore_pool_allocate(pool, 8, 8192, NULL, &ptr), FARCORE_INVALID_ARGUMENT,
           "4096 at most");
    EXPECT(farcore_pool_allocate(pool, (size_t)-1, 8, NULL, &ptr), FARCORE_TOO_LONG, "2^63");
    EXPECT(farcore_pool_allocate(pool, (size_t)1 << 40, 8, NULL, &ptr), FARCORE_EXHAUSTED,
           "no remote memory for 1099511627776 bytes");
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &ptr), FARCORE_INVALID_ARGUMENT, "0 to 4");
    place = (farcore_place){.placement = FARCORE_PLACEMENT_NODE, .node = 2};
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &ptr), FARCORE_NO_NODE, "node 2");
    place = (farcore_place){.placement = FARCORE_PLACEMENT_ZONE};
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &ptr), FARCORE_INVALID_ARGUMENT,
           "`zone` is null");
    place.zone = "elsewhere";
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &ptr), FARCORE_NO_NODE, "zone elsewhere");
    HOLDS(farcore_ptr_is_null(ptr));
    /* Nothing can be read of an allocation of nothing. */
    EXPECT(farcore_pool_allocate(pool, 0, 0, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_read(pool, ptr, NULL, 0), FARCORE_OK, "");
    EXPECT(farcore_pool_read(pool, ptr, &place, 1), FARCORE_OUT_OF_BOUNDS, "0 bytes");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
    /* Where memory is allocated. */
    place = (farcore_place){.placement = FARCORE_PLACEMENT_NODE, .node = 1};
    EXPECT(farcore_pool_allocate(pool, 100, 64, &place, &ptr), FARCORE_OK, "");
    uint32_t nodes[2] = {7, 7};
    size_t count = 0;
    EXPECT(farcore_pool_nodes_of(pool, ptr, nodes, 2, &count), FARCORE_OK, "");
    HOLDS(count == 1 && nodes[0] == 1 && nodes[1] == 7);
    EXPECT(farcore_pool_nodes_of(pool, ptr, NULL, 0, &count), FARCORE_BUFFER_TOO_SMALL, "give 1");
    EXPECT(farcore_pool_nodes_of(pool, ptr, NULL, 1, &count), FARCORE_INVALID_ARGUMENT,
           "`nodes` is null");
    EXPECT(farcore_pool_nodes_of(pool, ptr, nodes, 2, NULL), FARCORE_INVALID_ARGUMENT,
           "`count` is null");
    farcore_ptr other;
    place = (farcore_place){.placement = FARCORE_PLACEMENT_BESIDE, .node = 1};
    EXPECT(farcore_pool_allocate(pool, 100, 64, &place, &other), FARCORE_OK, "");
    EXPECT(farcore_pool_nodes_of(pool, other, nodes, 2, &count), FARCORE_OK, "");
    HOLDS(count == 1 && nodes[0] == 0);
    EXPECT(farcore_pool_deallocate(pool, other), FARCORE_OK, "");
    place = (farcore_place){.placement = FARCORE_PLACEMENT_SPREAD};
    EXPECT(farcore_pool_allocate(pool, 4 << 16, 0, &place, &other), FARCORE_OK, "");
    EXPECT(farcore_pool_nodes_of(pool, other, nodes, 2, &count), FARCORE_OK, "");
    HOLDS(count == 2 && nodes[0] != nodes[1]);
    EXPECT(farcore_pool_deallocate(pool, other), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
}

static void wrong_accesses(farcore_pool *pool, farcore_pool *other_pool) {
    char bytes[64] = {0};
    uint64_t old = 7;
    size_t length = 7;
    farcore_ptr ptr, null = {0};
    EXPECT(farcore_pool_allocate(pool, 32, 8, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_read(NULL, ptr, bytes, 8), FARCORE_INVALID_ARGUMENT, "`pool` is null");
    EXPECT(farcore_pool_read(pool, ptr, NULL, 8), FARCORE_INVALID_ARGUMENT, "`into` is null");
    EXPECT(farcore_pool_write(pool, ptr, NULL, 8), FARCORE_INVALID_ARGUMENT, "`from` is null");
    EXPECT(farcore_pool_read(pool, ptr, bytes, (size_t)-1), FARCORE_INVALID_ARGUMENT,
           "negative number");
    EXPECT(farcore_pool_read(pool, null, bytes, 8), FARCORE_INVALID_ARGUMENT,
           "the pointer is null");
    EXPECT(farcore_pool_read(pool, ptr, bytes, 33), FARCORE_OUT_OF_BOUNDS,
           "33 bytes at 0 exceed an allocation of 32 bytes");
    EXPECT(farcore_pool_write(pool, farcore_ptr_add(ptr, 25), bytes, 8), FARCORE_OUT_OF_BOUNDS,
           "8 bytes at 25");
    EXPECT(farcore_pool_read(pool, farcore_ptr_add(ptr, -1), bytes, 1), FARCORE_OUT_OF_BOUNDS,
           "at -1");
    farcore_ptr far = farcore_ptr_add(farcore_ptr_add(ptr, INT64_MAX), INT64_MAX);
    far = farcore_ptr_add(farcore_ptr_add(far, -INT64_MAX), -INT64_MAX);
    EXPECT(farcore_pool_read(pool, far, bytes, 1), FARCORE_OUT_OF_BOUNDS, "1 bytes at");
    EXPECT(farcore_pool_compare_and_swap(pool, farcore_ptr_add(ptr, 4), 0, 1, &old),
           FARCORE_UNALIGNED, "byte 4");
    EXPECT(farcore_pool_fetch_add(pool, farcore_ptr_add(ptr, 32), 1, &old), FARCORE_OUT_OF_BOUNDS,
           "at 32");
    HOLDS(old == 7);
    EXPECT(farcore_pool_read(other_pool, ptr, bytes, 8), FARCORE_FOREIGN, "export it");
    EXPECT(farcore_pool_deallocate(other_pool, ptr), FARCORE_FOREIGN, "export it");
    farcore_ptr made_up = ptr;
    made_up.slot += 1000;
    EXPECT(farcore_pool_read(pool, made_up, bytes, 8), FARCORE_FREED, "freed");
    made_up = ptr;
    made_up.generation++;
    EXPECT(farcore_pool_write(pool, made_up, bytes, 8), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_length(pool, ptr, NULL), FARCORE_INVALID_ARGUMENT, "`bytes` is null");
    EXPECT(farcore_pool_length(pool, made_up, &length), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_length(pool, ptr, &length), FARCORE_OK, "");
    HOLDS(length == 32);
    EXPECT(farcore_pool_loss(pool, ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_loss(pool, null), FARCORE_INVALID_ARGUMENT, "null");
    EXPECT(farcore_pool_deallocate(pool, farcore_ptr_add(ptr, 8)), FARCORE_INVALID_ARGUMENT,
           "byte 8 of its allocation");
    EXPECT(farcore_pool_deallocate(pool, null), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_FREED, "freed");
    /* Its memory is allocated again: the old pointer does not reach it. */
    farcore_ptr again;
    EXPECT(farcore_pool_allocate(pool, 32, 8, NULL, &again), FARCORE_OK, "");
    HOLDS(!farcore_ptr_equal(ptr, again));
    EXPECT(farcore_pool_write(pool, ptr, "late", 4), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_fetch_add(pool, ptr, 1, &old), FARCORE_FREED, "freed");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_FREED, "freed");
    int64_t difference = 0;
    EXPECT(farcore_ptr_difference(farcore_ptr_add(again, 24), again, &difference), FARCORE_OK, "");
    HOLDS(difference == 24);
    EXPECT(farcore_ptr_difference(ptr, again, &difference), FARCORE_INVALID_ARGUMENT,
           "different allocations");
    EXPECT(farcore_ptr_difference(again, again, NULL), FARCORE_INVALID_ARGUMENT, "null");
    EXPECT(farcore_pool_deallocate(pool, again), FARCORE_OK, "");
}

static void wrong_parts(farcore_pool *pool, farcore_pool *other_pool) {
    char first[8] = "first..", second[8] = "second.", buffer[16];
    farcore_ptr ptr, other;
    EXPECT(farcore_pool_allocate(pool, 64, 8, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_allocate(other_pool, 64, 8, NULL, &other), FARCORE_OK, "");
    farcore_write_part writes[2] = {{ptr, first, 8}, {farcore_ptr_add(ptr, 30), second, 8}};
    EXPECT(farcore_pool_write_many(pool, writes, 2), FARCORE_OK, "");
    EXPECT(farcore_pool_write_many(pool, NULL, 0), FARCORE_OK, "");
    EXPECT(farcore_pool_write_many(pool, NULL, 1), FARCORE_INVALID_ARGUMENT, "`parts` is null");
    EXPECT(farcore_pool_write_many(pool, writes, (size_t)-1), FARCORE_INVALID_ARGUMENT,
           "negative number");
    /* Nothing is stored if one part is wrong. */
    writes[0].from = "changed";
    writes[1].to = farcore_ptr_add(ptr, 60);
    EXPECT(farcore_pool_write_many(pool, writes, 2), FARCORE_OUT_OF_BOUNDS, "8 bytes at 60");
    writes[1].to = other;
    EXPECT(farcore_pool_write_many(pool, writes, 2), FARCORE_FOREIGN, "export it");
    writes[1] = (farcore_write_part){ptr, NULL, 1};
    EXPECT(farcore_pool_write_many(pool, writes, 2), FARCORE_INVALID_ARGUMENT, "`from` is null");
    farcore_read_part reads[2] = {{farcore_ptr_add(ptr, 30), buffer, 8}, {ptr, buffer + 8, 8}};
    EXPECT(farcore_pool_read_many(pool, reads, 2), FARCORE_OK, "");
    HOLDS(memcmp(buffer, "second.\0first..", 16) == 0);
    reads[1].into = buffer + 7;
    EXPECT(farcore_pool_read_many(pool, reads, 2), FARCORE_INVALID_ARGUMENT, "overlap");
    reads[1].into = NULL;
    EXPECT(farcore_pool_read_many(pool, reads, 2), FARCORE_INVALID_ARGUMENT, "`into` is null");
    reads[1] = (farcore_read_part){farcore_ptr_add(ptr, 57), buffer + 8, 8};
    EXPECT(farcore_pool_read_many(pool, reads, 2), FARCORE_OUT_OF_BOUNDS, "8 bytes at 57");
    EXPECT(farcore_pool_deallocate(other_pool, other), FARCORE_OK, "");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_read_many(pool, reads, 2), FARCORE_FREED, "freed");
}

static void wrong_operations(farcore_pool *pool) {
    farcore_operation *operation = (farcore_operation *)&wrong;
    farcore_ptr ptr, taken, null = {0};
    uint64_t word = 7;
    EXPECT(farcore_pool_submit_read(NULL, null, 8, &operation), FARCORE_INVALID_ARGUMENT,
           "`pool` is null");
    HOLDS(operation == NULL);
    EXPECT(farcore_pool_submit_read(pool, null, 8, NULL), FARCORE_INVALID_ARGUMENT,
           "`operation` is null");
    EXPECT(farcore_pool_submit_read(pool, null, 8, &operation), FARCORE_INVALID_ARGUMENT,
           "the pointer is null");
    EXPECT(farcore_pool_submit_allocate(pool, (size_t)1 << 40, 8, NULL, &operation), FARCORE_OK,
           "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_EXHAUSTED, "no remote memory");
    EXPECT(farcore_operation_take_ptr(operation, &taken), FARCORE_EXHAUSTED, "no remote memory");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_submit_allocate(pool, 64, 8, NULL, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_ptr(operation, NULL), FARCORE_INVALID_ARGUMENT, "`ptr` is null");
    EXPECT(farcore_operation_word(operation, &word), FARCORE_INVALID_ARGUMENT, "no word");
    EXPECT(farcore_operation_take_ptr(operation, &ptr), FARCORE_OK, "");
    EXPECT(farcore_operation_take_ptr(operation, &taken), FARCORE_TAKEN, "taken before");
    HOLDS(farcore_ptr_is_null(taken));
    farcore_operation_free(operation);
    /* Memory that is not taken is freed with its operation. */
    EXPECT(farcore_pool_submit_allocate(pool, 64, 8, NULL, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
}

static void wrong_transfers(farcore_pool *pool) {
    farcore_operation *operation = NULL;
    farcore_ptr ptr, taken;
    farcore_value value;
    farcore_batch *batch = NULL;
    uint64_t word = 7;
    EXPECT(farcore_pool_allocate(pool, 64, 8, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_submit_write(pool, ptr, "12345678", 8, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_value(operation, &value), FARCORE_INVALID_ARGUMENT, "no value");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_submit_read(pool, ptr, 8, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_value(operation, &value), FARCORE_OK, "");
    HOLDS(value.length == 8 && memcmp(value.bytes, "12345678", 8) == 0);
    farcore_value_free(&value);
    EXPECT(farcore_operation_take_value(operation, &value), FARCORE_TAKEN, "taken before");
    EXPECT(farcore_operation_take_ptr(operation, &taken), FARCORE_TAKEN, "taken before");
    farcore_operation_free(operation);
    /* No memory is allocated for what cannot be read. */
    EXPECT(farcore_pool_submit_read(pool, ptr, (size_t)-1, &operation), FARCORE_OK, "");
    EXPECT(farcore_poll(operation), FARCORE_OUT_OF_BOUNDS, "exceed an allocation of 64");
    farcore_operation_free(operation);
    farcore_read_part parts[2] = {{ptr, NULL, 4}, {farcore_ptr_add(ptr, 4), NULL, 4}};
    EXPECT(farcore_pool_submit_read_many(pool, parts, 2, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_take_batch(operation, &batch), FARCORE_OK, "");
    farcore_item item;
    EXPECT(farcore_batch_item(batch, 1, &item), FARCORE_OK, "");
    HOLDS(item.length == 4 && memcmp(item.bytes, "5678", 4) == 0);
    farcore_batch_free(batch);
    farcore_operation_free(operation);
    parts[1].length = (size_t)1 << 50;
    EXPECT(farcore_pool_submit_read_many(pool, parts, 2, &operation), FARCORE_OK, "");
    EXPECT(farcore_poll(operation), FARCORE_OUT_OF_BOUNDS, "exceed");
    farcore_operation_free(operation);
    farcore_write_part writes[2] = {{ptr, "abcd", 4}, {farcore_ptr_add(ptr, 62), "efgh", 4}};
    EXPECT(farcore_pool_submit_write_many(pool, writes, 2, &operation), FARCORE_OK, "");
    EXPECT(farcore_poll(operation), FARCORE_OUT_OF_BOUNDS, "4 bytes at 62");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_submit_fetch_add(pool, farcore_ptr_add(ptr, 1), 1, &operation), FARCORE_OK,
           "");
    EXPECT(farcore_poll(operation), FARCORE_UNALIGNED, "byte 1");
    EXPECT(farcore_operation_word(operation, &word), FARCORE_UNALIGNED, "byte 1");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_submit_fetch_add(pool, farcore_ptr_add(ptr, 8), 5, &operation), FARCORE_OK,
           "");
    /* The memory is freed while the operation is under way, which still ends. */
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_operation_word(operation, &word), FARCORE_OK, "");
    farcore_operation_free(operation);
    EXPECT(farcore_pool_submit_compare_and_swap(pool, ptr, 0, 1, &operation), FARCORE_FREED,
           "freed");
    EXPECT(farcore_pool_submit_write_many(pool, writes, 2, &operation), FARCORE_FREED, "freed");
    farcore_operation_free(operation);
}

static void wrong_embedded(void) {
    farcore_pool *pool = NULL;
    farcore_ptr ptr;
    farcore_value text;
    farcore_operation *export = NULL;
    farcore_node node;
    uint32_t count = 0;
    EXPECT(farcore_pool_embedded(1 << 20, &pool), FARCORE_OK, "");
    EXPECT(farcore_pool_allocate(pool, 64, 8, NULL, &ptr), FARCORE_OK, "");
    EXPECT(farcore_pool_export(pool, ptr, NULL, true, &text), FARCORE_EMBEDDED, "this process");
    EXPECT(farcore_pool_transfer(pool, ptr, NULL, &text), FARCORE_EMBEDDED, "this process");
    EXPECT(farcore_pool_submit_export(pool, ptr, NULL, true, &export), FARCORE_OK, "");
    EXPECT(farcore_wait(export, FARCORE_NO_LIMIT), FARCORE_EMBEDDED, "this process");
    farcore_operation_free(export);
    EXPECT(farcore_pool_length(pool, ptr, &(size_t){0}), FARCORE_OK, "");
    EXPECT(farcore_pool_call(pool, 0, "sum", NULL, 0, NULL), FARCORE_PROCEDURE, "`sum` failed");
    EXPECT(farcore_pool_node_count(pool, NULL), FARCORE_INVALID_ARGUMENT, "`count` is null");
    EXPECT(farcore_pool_node_count(pool, &count), FARCORE_OK, "");
    EXPECT(farcore_pool_node(pool, 0, NULL), FARCORE_INVALID_ARGUMENT, "`node` is null");
    EXPECT(farcore_pool_node(pool, 1, &node), FARCORE_NO_NODE, "the pool has 1 nodes");
    EXPECT(farcore_pool_node(pool, 0, &node), FARCORE_OK, "");
    HOLDS(count == 1 && node.is_up && strcmp(node.address, "this process") == 0);
    HOLDS(node.allocated_bytes >= 64 && node.lent_bytes == 1 << 20 && node.reason[0] == '\0');
    /* Closing frees what is left, also memory that an operation still holds. */
    farcore_operation *allocate = NULL, *read = NULL;
    EXPECT(farcore_pool_submit_allocate(pool, 64, 8, NULL, &allocate), FARCORE_OK, "");
    EXPECT(farcore_wait(allocate, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_pool_submit_read(pool, ptr, 8, &read), FARCORE_OK, "");
    EXPECT(farcore_pool_close(pool), FARCORE_OK, "");
    EXPECT(farcore_pool_close(pool), FARCORE_OK, "");
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &ptr), FARCORE_CLOSED, "connect again");
    EXPECT(farcore_pool_read(pool, ptr, &count, 1), FARCORE_CLOSED, "closed");
    EXPECT(farcore_pool_deallocate(pool, ptr), FARCORE_CLOSED, "closed");
    EXPECT(farcore_pool_loss(pool, ptr), FARCORE_CLOSED, "closed");
    EXPECT(farcore_pool_node_count(pool, &count), FARCORE_CLOSED, "closed");
    EXPECT(farcore_pool_submit_read(pool, ptr, 8, &export), FARCORE_CLOSED, "closed");
    HOLDS(export == NULL);
    EXPECT(farcore_wait(read, FARCORE_NO_LIMIT), FARCORE_OK, "");
    farcore_pool_free(pool);
    farcore_operation_free(read);
    EXPECT(farcore_operation_take_ptr(allocate, &ptr), FARCORE_CLOSED, "closed");
    farcore_operation_free(allocate);
}

/* A node is started again at its address: what was allocated there is lost. */
static void renewed(char **arguments) {
    const char *const *nodes = (const char *const *)arguments;
    farcore_pool_options *options = farcore_pool_options_new();
    farcore_pool *pool = NULL;
    farcore_ptr lost, again;
    farcore_operation *read = NULL;
    uint64_t word = 5, old = 7;
    EXPECT(farcore_pool_options_set_timeout_ms(options, 60000), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 1, options, &pool), FARCORE_OK, "");
    farcore_pool_options_free(options);
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &lost), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, lost, &word, 8), FARCORE_OK, "");
    conduct("stop", 0);
    EXPECT(farcore_pool_submit_read(pool, lost, 8, &read), FARCORE_OK, "");
    conduct("start", 0);
    /* However long the new session takes, the old memory is lost, never another's. */
    EXPECT(farcore_pool_read(pool, lost, &word, 8), FARCORE_RENEWED, "allocate again");
    EXPECT(farcore_wait(read, FARCORE_NO_LIMIT), FARCORE_RENEWED, "allocate again");
    farcore_operation_free(read);
    EXPECT(farcore_pool_write(pool, lost, &word, 8), FARCORE_RENEWED, "renewed");
    EXPECT(farcore_pool_compare_and_swap(pool, lost, 5, 6, &old), FARCORE_RENEWED, "renewed");
    EXPECT(farcore_pool_loss(pool, lost), FARCORE_RENEWED, "renewed");
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &again), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, again, "renewed!", 8), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, lost, &word, 8), FARCORE_RENEWED, "renewed");
    EXPECT(farcore_pool_deallocate(pool, lost), FARCORE_OK, "");
    char bytes[8];
    EXPECT(farcore_pool_read(pool, again, bytes, 8), FARCORE_OK, "");
    HOLDS(memcmp(bytes, "renewed!", 8) == 0);
    farcore_node node;
    EXPECT(farcore_pool_node(pool, 0, &node), FARCORE_OK, "");
    HOLDS(node.renewals == 1);
    farcore_pool_free(pool);
}

/* A node is gone: what is there cannot be reached, and new memory comes from the other. */
static void down(char **arguments) {
    const char *const *nodes = (const char *const *)arguments;
    farcore_pool_options *options = farcore_pool_options_new();
    farcore_pool *pool = NULL;
    farcore_ptr gone, here;
    farcore_operation *read = NULL;
    farcore_value text;
    farcore_place place = {.placement = FARCORE_PLACEMENT_NODE, .node = 1};
    uint64_t word = 5;
    EXPECT(farcore_pool_options_set_timeout_ms(options, 300), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 2, options, &pool), FARCORE_OK, "");
    farcore_pool_options_free(options);
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &gone), FARCORE_OK, "");
    EXPECT(farcore_pool_export(pool, gone, NULL, true, &text), FARCORE_OK, "");
    farcore_value_free(&text);
    conduct("stop", 1);
    EXPECT(farcore_pool_submit_read(pool, gone, 8, &read), FARCORE_OK, "");
    EXPECT(farcore_poll(read), FARCORE_PENDING, "");
    EXPECT(farcore_wait(read, 0), FARCORE_PENDING, "");
    EXPECT(farcore_pool_transfer(pool, gone, NULL, &text), FARCORE_IN_USE, "wait for them");
    EXPECT(farcore_pool_read(pool, gone, &word, 8), FARCORE_NODE_DOWN, "no answer within 300ms");
    EXPECT(farcore_wait(read, FARCORE_NO_LIMIT), FARCORE_NODE_DOWN, "no answer within 300ms");
    farcore_operation_free(read);
    /* What it holds may be intact. */
    EXPECT(farcore_pool_loss(pool, gone), FARCORE_OK, "");
    farcore_node node;
    while (farcore_pool_node(pool, 1, &node) == FARCORE_OK && node.is_up) {
    }
    HOLDS(node.reason[0] != '\0' && strcmp(node.address, nodes[1]) == 0);
    EXPECT(farcore_pool_allocate(pool, 8, 8, &place, &here), FARCORE_NODE_DOWN, nodes[1]);
    EXPECT(farcore_pool_allocate(pool, 8, 8, NULL, &here), FARCORE_OK, "");
    EXPECT(farcore_pool_write(pool, here, &word, 8), FARCORE_OK, "");
    /* An operation that is freed while it waits. */
    EXPECT(farcore_pool_submit_write(pool, gone, &word, 8, &read), FARCORE_OK, "");
    farcore_operation_free(read);
    EXPECT(farcore_pool_deallocate(pool, gone), FARCORE_OK, "");
    farcore_pool_free(pool);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: pool_misuse NODE0 NODE1 NODE2 NODE3 TOKEN-FILE WORDS ORDERS\n");
        return 2;
    }
    char **arguments = argv + 1;
    const char *const *nodes = (const char *const *)arguments;
    wrong_options();
    wrong_connections(arguments);
    farcore_pool *pool = NULL, *other = NULL;
    EXPECT(farcore_pool_connect(nodes, 2, NULL, &pool), FARCORE_OK, "");
    EXPECT(farcore_pool_connect(nodes, 2, NULL, &other), FARCORE_OK, "");
    if (pool == NULL || other == NULL) {
        return 1;
    }
    wrong_allocations(pool);
    wrong_accesses(pool, other);
    wrong_parts(pool, other);
    wrong_operations(pool);
    wrong_transfers(pool);
    farcore_pool_free(other);
    farcore_pool_free(pool);
    wrong_embedded();
    renewed(arguments);
    down(arguments);
    printf("%d of %d wrong\n", wrong, checked);
    return wrong == 0 ? 0 : 1;
}
