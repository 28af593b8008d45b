/* Each misuse of the interface has its code, and leaves no error for a sanitizer.
 *
 *     misuse ADDRESS TOKEN-FILE
 */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static farcore_options *options_of(const char *token_file) {
    farcore_options *options = farcore_options_new();
    EXPECT(farcore_options_set_timeout_ms(options, 20000), FARCORE_OK, "");
    if (token_file != NULL) {
        EXPECT(farcore_options_set_token_file(options, token_file), FARCORE_OK, "");
    }
    return options;
}

static void wrong_options(void) {
    farcore_options *options = farcore_options_new();
    EXPECT(farcore_options_set_timeout_ms(NULL, 1), FARCORE_INVALID_ARGUMENT, "`options` is null");
    EXPECT(farcore_options_set_token(options, NULL, 20), FARCORE_INVALID_ARGUMENT,
           "`token` is null");
    EXPECT(farcore_options_set_token(options, "short", 5), FARCORE_INVALID_ARGUMENT,
           "5 bytes long, must be 16 to 4096");
    EXPECT(farcore_options_set_token_file(options, NULL), FARCORE_INVALID_ARGUMENT,
           "`path` is null");
    EXPECT(farcore_options_set_token_file(options, "/nonexistent/token"), FARCORE_INVALID_ARGUMENT,
           "/nonexistent/token");
    EXPECT(farcore_options_set_name(options, "\xff"), FARCORE_INVALID_ARGUMENT, "UTF-8");
    EXPECT(farcore_options_set_credits(options, 70000), FARCORE_INVALID_ARGUMENT, "70000");
    EXPECT(farcore_options_set_transfer(options, 2), FARCORE_INVALID_ARGUMENT, "0 or 1");
    EXPECT(farcore_options_set_landings(options, 65536, 1u << 20), FARCORE_INVALID_ARGUMENT,
           "1048576");
    EXPECT(farcore_options_set_device(options, NULL), FARCORE_INVALID_ARGUMENT, "`device` is null");
    EXPECT(farcore_options_set_device(options, ""), FARCORE_INVALID_ARGUMENT, "empty");
    EXPECT(farcore_options_set_device(options, "mlx5_0"), FARCORE_OK, "");
    EXPECT(farcore_options_set_port(options, 0), FARCORE_INVALID_ARGUMENT, "port is 0: must be 1");
    EXPECT(farcore_options_set_port(options, 256), FARCORE_INVALID_ARGUMENT, "1 to 255");
    EXPECT(farcore_options_set_port(options, 255), FARCORE_OK, "");
    EXPECT(farcore_options_set_gid_index(options, 256), FARCORE_INVALID_ARGUMENT,
           "gid_index is 256: must be 0 to 255");
    EXPECT(farcore_options_set_gid_index(options, 0), FARCORE_OK, "");
    farcore_options_free(options);
    farcore_options_free(NULL);
}

static void wrong_connections(const char *address, const char *token_file) {
    farcore_options *options = options_of(token_file);
    farcore_client *client = (farcore_client *)&wrong;
    EXPECT(farcore_connect(NULL, options, &client), FARCORE_INVALID_ARGUMENT, "`address` is null");
    if (client != NULL) {
        fprintf(stderr, "a failed connect left a client\n");
        wrong++;
    }
    EXPECT(farcore_connect(address, options, NULL), FARCORE_INVALID_ARGUMENT, "`client` is null");
    EXPECT(farcore_connect("nowhere", options, &client), FARCORE_INVALID_ARGUMENT, "no scheme");
    EXPECT(farcore_connect("tcp://\xff", options, &client), FARCORE_INVALID_ARGUMENT, "UTF-8");
    EXPECT(farcore_connect("tcp://127.0.0.1:1", options, &client), FARCORE_UNREACHABLE,
           "tcp://127.0.0.1:1");
    EXPECT(farcore_options_set_queue(options, 0), FARCORE_OK, "");
    EXPECT(farcore_connect(address, options, &client), FARCORE_INVALID_ARGUMENT,
           "queue is 0: must be 1 to 1048576");
    EXPECT(farcore_options_set_queue(options, UINT32_MAX), FARCORE_OK, "");
    EXPECT(farcore_connect(address, options, &client), FARCORE_INVALID_ARGUMENT,
           "queue is 4294967295");
    EXPECT(farcore_options_set_queue(options, 16), FARCORE_OK, "");
    EXPECT(farcore_options_set_timeout_ms(options, 0), FARCORE_OK, "");
    EXPECT(farcore_connect(address, options, &client), FARCORE_INVALID_ARGUMENT,
           "must be 1 to 86400000");
    EXPECT(farcore_options_set_timeout_ms(options, 20000), FARCORE_OK, "");
    EXPECT(farcore_options_set_token(options, "another token of a test", 23), FARCORE_OK, "");
    EXPECT(farcore_connect(address, options, &client), FARCORE_WRONG_TOKEN, "token");
    farcore_options_free(options);
    EXPECT(farcore_connect(address, NULL, &client), FARCORE_WRONG_TOKEN, "token");
    farcore_client_free(NULL);
    EXPECT(farcore_client_close(NULL), FARCORE_INVALID_ARGUMENT, "`client` is null");
}

static void wrong_keys(const farcore_client *client) {
    static char long_key[2000];
    farcore_value value;
    EXPECT(farcore_get(NULL, "k", 1, &value), FARCORE_INVALID_ARGUMENT, "`client` is null");
    EXPECT(farcore_get(client, NULL, 1, &value), FARCORE_INVALID_ARGUMENT, "`key` is null");
    EXPECT(farcore_get(client, "k", 1, NULL), FARCORE_INVALID_ARGUMENT, "`value` is null");
    EXPECT(farcore_get(client, "k", (size_t)-1, &value), FARCORE_INVALID_ARGUMENT,
           "negative number");
    EXPECT(farcore_get(client, NULL, 0, &value), FARCORE_KEY_TOO_LONG, "1 to 1024");
    EXPECT(farcore_get(client, "", 0, &value), FARCORE_KEY_TOO_LONG, "0 bytes");
    EXPECT(farcore_get(client, long_key, sizeof long_key, &value), FARCORE_KEY_TOO_LONG,
           "2000 bytes: a key has 1 to 1024");
    EXPECT(farcore_get(client, "absent", 6, &value), FARCORE_NOT_FOUND, "no such key");
    /* Unless it was read, a value is all zeros. */
    farcore_value_free(&value);
    farcore_value_free(NULL);
    EXPECT(farcore_put(client, long_key, sizeof long_key, "v", 1, NULL), FARCORE_KEY_TOO_LONG,
           "2000");
    EXPECT(farcore_delete(client, long_key, sizeof long_key), FARCORE_KEY_TOO_LONG, "2000");
    EXPECT(farcore_exists(client, NULL, 1), FARCORE_INVALID_ARGUMENT, "`key` is null");
    EXPECT(farcore_inspect(client, "k", 1, NULL), FARCORE_INVALID_ARGUMENT, "`metadata` is null");
    EXPECT(farcore_ping(NULL), FARCORE_INVALID_ARGUMENT, "`client` is null");
}

static void wrong_values(const farcore_client *client) {
    size_t length = ((size_t)64 << 20) + 1;
    char *value = calloc(length, 1);
    EXPECT(farcore_put(client, "k", 1, value, length, NULL), FARCORE_VALUE_TOO_LONG,
           "67108865 bytes: the limit is 67108864");
    EXPECT(farcore_compare_and_swap(client, "k", 1, value, length, 0, NULL), FARCORE_VALUE_TOO_LONG,
           "67108865");
    free(value);
    EXPECT(farcore_put(client, "k", 1, NULL, 1, NULL), FARCORE_INVALID_ARGUMENT, "`value` is null");
    EXPECT(farcore_put(client, "k", 1, NULL, 0, NULL), FARCORE_OK, "");
    size_t read = 7;
    EXPECT(farcore_get_into(client, "k", 1, NULL, 0, &read, NULL), FARCORE_OK, "");
    if (read != 0) {
        fprintf(stderr, "an empty value has %zu bytes\n", read);
        wrong++;
    }
    char buffer[4] = "xxx";
    EXPECT(farcore_put(client, "k", 1, "value", 5, NULL), FARCORE_OK, "");
    EXPECT(farcore_get_into(client, "k", 1, buffer, 4, &read, NULL), FARCORE_BUFFER_TOO_SMALL,
           "5 bytes, the buffer 4");
    if (read != 5 || strcmp(buffer, "xxx") != 0) {
        fprintf(stderr, "a short buffer: %zu bytes needed, '%s' in it\n", read, buffer);
        wrong++;
    }
    EXPECT(farcore_get_into(client, "k", 1, NULL, 4, &read, NULL), FARCORE_INVALID_ARGUMENT,
           "`buffer` is null");
    EXPECT(farcore_get_into(client, "k", 1, buffer, 4, NULL, NULL), FARCORE_INVALID_ARGUMENT,
           "`length` is null");
    EXPECT(farcore_increment(client, "k", 1, 1, NULL), FARCORE_WRONG_KIND, "decimal");
}

static void wrong_conditions(const farcore_client *client) {
    uint64_t version = 0, now = 0;
    EXPECT(farcore_put(client, "k", 1, "value", 5, &version), FARCORE_OK, "");
    farcore_put_options options = {.condition = FARCORE_CONDITION_ABSENT};
    EXPECT(farcore_put_with(client, "k", 1, "v", 1, &options, &now), FARCORE_EXISTS, "exists");
    if (now != version) {
        fprintf(stderr, "the present version is not returned\n");
        wrong++;
    }
    options.condition = FARCORE_CONDITION_PRESENT;
    EXPECT(farcore_put_with(client, "absent", 6, "v", 1, &options, &now), FARCORE_NOT_FOUND, "key");
    options.condition = FARCORE_CONDITION_VERSION;
    options.version = version + 1;
    EXPECT(farcore_put_with(client, "k", 1, "v", 1, &options, &now), FARCORE_VERSION_MISMATCH,
           "read it again");
    options.condition = 4;
    EXPECT(farcore_put_with(client, "k", 1, "v", 1, &options, &now), FARCORE_INVALID_ARGUMENT,
           "`condition` is 4");
    EXPECT(farcore_put_with(client, "k", 1, "v", 1, NULL, &version), FARCORE_OK, "");
    EXPECT(farcore_expire(client, "k", 1, 9, 0, 0), FARCORE_INVALID_ARGUMENT, "`expiry` is 9");
    EXPECT(farcore_expire(client, "k", 1, FARCORE_EXPIRY_IN, 60000, FARCORE_EXPIRY_CONDITION_SET),
           FARCORE_NOT_FOUND, "condition");
    EXPECT(farcore_compare_and_swap(client, "k", 1, "v", 1, version + 1, &now),
           FARCORE_VERSION_MISMATCH, "read it again");
    EXPECT(farcore_delete_if(client, "k", 1, version + 1, &now), FARCORE_VERSION_MISMATCH, "again");
    EXPECT(farcore_delete_if(client, "absent", 6, 1, &now), FARCORE_NOT_FOUND, "no such key");
    EXPECT(farcore_delete_if(client, "k", 1, version, &now), FARCORE_OK, "");
    EXPECT(farcore_delete(client, "k", 1), FARCORE_NOT_FOUND, "no such key");
}

static void wrong_batches(const farcore_client *client) {
    farcore_batch *batch = NULL;
    farcore_item item;
    farcore_slice keys[3] = {{"absent", 6}, {"", 0}, {NULL, 5}};
    EXPECT(farcore_get_many(client, keys, 3, &batch), FARCORE_INVALID_ARGUMENT, "`key` is null");
    EXPECT(farcore_get_many(client, NULL, 2, &batch), FARCORE_INVALID_ARGUMENT, "`keys` is null");
    EXPECT(farcore_get_many(client, keys, 2, NULL), FARCORE_INVALID_ARGUMENT, "`batch` is null");
    EXPECT(farcore_get_many(client, NULL, 0, &batch), FARCORE_OK, "");
    EXPECT(farcore_batch_item(batch, 0, &item), FARCORE_INVALID_ARGUMENT, "has 0 outcomes");
    farcore_batch_free(batch);
    EXPECT(farcore_delete_many(client, keys, 2, &batch), FARCORE_OK, "");
    EXPECT(farcore_batch_item(batch, 0, NULL), FARCORE_INVALID_ARGUMENT, "`item` is null");
    EXPECT(farcore_batch_item(batch, 2, &item), FARCORE_INVALID_ARGUMENT, "`index` is 2");
    EXPECT(farcore_batch_item(batch, 0, &item), FARCORE_OK, "");
    if (item.code != FARCORE_NOT_FOUND || item.bytes != NULL || item.message == NULL) {
        fprintf(stderr, "an absent key: %d\n", (int)item.code);
        wrong++;
    }
    EXPECT(farcore_batch_item(batch, 1, &item), FARCORE_OK, "");
    if (item.code != FARCORE_KEY_TOO_LONG) {
        fprintf(stderr, "an empty key: %d\n", (int)item.code);
        wrong++;
    }
    farcore_batch_free(batch);
    farcore_batch_free(NULL);
    EXPECT(farcore_batch_item(NULL, 0, &item), FARCORE_INVALID_ARGUMENT, "`batch` is null");
    EXPECT((farcore_code)farcore_batch_count(NULL), FARCORE_OK, "");
}

static void wrong_operations(const farcore_client *client) {
    farcore_operation *operation = NULL;
    farcore_batch *batch = NULL;
    farcore_metadata metadata;
    farcore_value value, again;
    uint64_t version = 0;
    int64_t sum = 0;
    size_t length = 0;
    char buffer[2];
    EXPECT(farcore_poll(NULL), FARCORE_INVALID_ARGUMENT, "`operation` is null");
    EXPECT(farcore_wait(NULL, 0), FARCORE_INVALID_ARGUMENT, "`operation` is null");
    EXPECT(farcore_submit_get(client, "k", 1, NULL), FARCORE_INVALID_ARGUMENT,
           "`operation` is null");
    EXPECT(farcore_submit_get(NULL, "k", 1, &operation), FARCORE_INVALID_ARGUMENT, "`client`");
    EXPECT(farcore_put(client, "k", 1, "value", 5, NULL), FARCORE_OK, "");
    EXPECT(farcore_submit_get(client, "k", 1, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_poll(operation), FARCORE_OK, "");
    EXPECT(farcore_operation_sum(operation, &sum), FARCORE_INVALID_ARGUMENT, "no sum");
    EXPECT(farcore_operation_metadata(operation, &metadata), FARCORE_INVALID_ARGUMENT,
           "no metadata");
    EXPECT(farcore_operation_take_batch(operation, &batch), FARCORE_INVALID_ARGUMENT, "no batch");
    EXPECT(farcore_operation_take_value(operation, NULL), FARCORE_INVALID_ARGUMENT, "`value`");
    EXPECT(farcore_operation_copy_value(operation, buffer, 2, &length), FARCORE_BUFFER_TOO_SMALL,
           "5 bytes, the buffer 2");
    EXPECT(farcore_operation_take_value(operation, &value), FARCORE_OK, "");
    /* The operation has ended, and its value is the caller's. */
    EXPECT(farcore_operation_take_value(operation, &again), FARCORE_TAKEN, "taken before");
    EXPECT(farcore_operation_copy_value(operation, buffer, 2, &length), FARCORE_TAKEN, "taken");
    EXPECT(farcore_poll(operation), FARCORE_OK, "");
    EXPECT(farcore_operation_version(operation, &version), FARCORE_OK, "");
    farcore_operation_free(operation);
    if (value.length != 5 || memcmp(value.bytes, "value", 5) != 0 || value.version != version) {
        fprintf(stderr, "the value did not outlive its operation\n");
        wrong++;
    }
    farcore_value_free(&value);
    farcore_value_free(&value);
    farcore_value_free(&again);
    EXPECT(farcore_submit_get(client, "absent", 6, &operation), FARCORE_OK, "");
    EXPECT(farcore_wait(operation, FARCORE_NO_LIMIT), FARCORE_NOT_FOUND, "no such key");
    EXPECT(farcore_operation_take_value(operation, &value), FARCORE_NOT_FOUND, "no such key");
    EXPECT(farcore_operation_version(operation, &version), FARCORE_NOT_FOUND, "no such key");
    farcore_operation_free(operation);
    EXPECT(farcore_submit_get(client, NULL, 0, &operation), FARCORE_OK, "");
    EXPECT(farcore_poll(operation), FARCORE_KEY_TOO_LONG, "0 bytes");
    farcore_operation_free(operation);
    /* One that is freed before it ends goes on alone. */
    EXPECT(farcore_submit_put(client, "k", 1, "other", 5, &operation), FARCORE_OK, "");
    farcore_operation_free(operation);
    farcore_operation_free(NULL);
}

/* Results may lie anywhere, as the members of a packed struct do. */
static void unaligned(const farcore_client *client) {
    static char place[sizeof(farcore_value) + sizeof(farcore_put_options) + 1];
    farcore_value *value = (farcore_value *)(void *)(place + 1), copy;
    uint64_t *version = (uint64_t *)(void *)(place + 1);
    int64_t *sum = (int64_t *)(void *)(place + 1);
    farcore_put_options options = {.condition = FARCORE_CONDITION_VERSION, .version = 1};
    void *given = memcpy(place + 1 + sizeof *value, &options, sizeof options);
    EXPECT(farcore_put(client, "u", 1, "7", 1, version), FARCORE_OK, "");
    EXPECT(farcore_increment(client, "u", 1, 1, sum), FARCORE_OK, "");
    EXPECT(farcore_put_with(client, "u", 1, "7", 1, given, version), FARCORE_VERSION_MISMATCH,
           "not 1");
    EXPECT(farcore_get(client, "u", 1, value), FARCORE_OK, "");
    memcpy(&copy, place + 1, sizeof copy);
    if (copy.length != 1 || copy.bytes[0] != '8') {
        fprintf(stderr, "a value that is not aligned: %zu bytes\n", copy.length);
        wrong++;
    }
    farcore_value_free(value);
    EXPECT(farcore_get_many(client, (void *)(place + 1), 1, (void *)(place + 1)),
           FARCORE_INVALID_ARGUMENT, "not aligned");
    EXPECT(farcore_delete(client, "u", 1), FARCORE_OK, "");
}

/* A child cannot use what its parent has made, nor harm it, and connects by itself. */
static void forked(farcore_client *client, const char *address, const char *token_file) {
    farcore_operation *put = NULL;
    farcore_value value;
    int status = -1;
    EXPECT(farcore_submit_put(client, "f", 1, "own", 3, &put), FARCORE_OK, "");
    const pid_t child = fork();
    if (child == 0) {
        EXPECT(farcore_get(client, "f", 1, &value), FARCORE_CLOSED, "connect in the child");
        EXPECT(farcore_wait(put, FARCORE_NO_LIMIT), FARCORE_CLOSED, "connect in the child");
        EXPECT(farcore_client_close(client), FARCORE_OK, "");
        farcore_operation_free(put);
        farcore_client_free(client);
        farcore_options *options = options_of(token_file);
        EXPECT(farcore_connect(address, options, &client), FARCORE_OK, "");
        EXPECT(farcore_ping(client), FARCORE_OK, "");
        farcore_client_free(client);
        farcore_options_free(options);
        _exit(wrong);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child has ended with %d\n", status);
        wrong++;
    }
    EXPECT(farcore_wait(put, FARCORE_NO_LIMIT), FARCORE_OK, "");
    EXPECT(farcore_delete(client, "f", 1), FARCORE_OK, "");
    farcore_operation_free(put);
}

static void closed(farcore_client *client) {
    farcore_operation *operation = NULL, *refused = NULL;
    farcore_batch *batch = NULL;
    farcore_value value;
    EXPECT(farcore_submit_put(client, "k", 1, "last", 4, &operation), FARCORE_OK, "");
    EXPECT(farcore_client_close(client), FARCORE_OK, "");
    EXPECT(farcore_client_close(client), FARCORE_OK, "");
    EXPECT(farcore_get(client, "k", 1, &value), FARCORE_CLOSED, "connect again");
    EXPECT(farcore_ping(client), FARCORE_CLOSED, "closed");
    EXPECT(farcore_get_many(client, NULL, 0, &batch), FARCORE_CLOSED, "closed");
    EXPECT(farcore_submit_get(client, "k", 1, &refused), FARCORE_CLOSED, "closed");
    if (refused != NULL) {
        fprintf(stderr, "a failed submit left an operation\n");
        wrong++;
    }
    /* What was under way has ended with its own outcome. */
    EXPECT(farcore_poll(operation), FARCORE_OK, "");
    farcore_client_free(client);
    EXPECT(farcore_poll(operation), FARCORE_OK, "");
    farcore_operation_free(operation);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: misuse ADDRESS TOKEN-FILE\n");
        return 2;
    }
    wrong_options();
    wrong_connections(argv[1], argv[2]);
    farcore_options *options = options_of(argv[2]);
    farcore_client *client = NULL;
    EXPECT(farcore_connect(argv[1], options, &client), FARCORE_OK, "");
    farcore_options_free(options);
    if (client == NULL) {
        return 1;
    }
    wrong_keys(client);
    wrong_values(client);
    wrong_conditions(client);
    wrong_batches(client);
    wrong_operations(client);
    unaligned(client);
    forked(client, argv[1], argv[2]);
    closed(client);
    printf("%d of %d wrong\n", wrong, checked);
    return wrong == 0 ? 0 : 1;
}
