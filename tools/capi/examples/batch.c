/* Stores, reads and removes many keys, several in one message.
 *
 *     ./batch tcp://127.0.0.1:7401 [token file]
 */
#include <farcore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100 };

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
}

static farcore_client *connect_to(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "tcp://127.0.0.1:7401";
    farcore_options *options = farcore_options_new();
    check("time limit", farcore_options_set_timeout_ms(options, 20000));
    if (argc > 2) {
        check("token", farcore_options_set_token_file(options, argv[2]));
    }
    farcore_client *client = NULL;
    check("connect", farcore_connect(address, options, &client));
    farcore_options_free(options);
    return client;
}

/* How many outcomes of a batch are successes; a failure has a code and a text of its own. */
static size_t done(const farcore_batch *batch) {
    size_t count = 0;
    for (size_t index = 0; index < farcore_batch_count(batch); index++) {
        farcore_item item;
        check("item", farcore_batch_item(batch, index, &item));
        if (item.code == FARCORE_OK) {
            count++;
        } else {
            printf("outcome %zu: %s\n", index, item.message);
        }
    }
    return count;
}

int main(int argc, char **argv) {
    farcore_client *client = connect_to(argc, argv);
    static char keys[COUNT][32], values[COUNT][32];
    farcore_pair pairs[COUNT];
    farcore_slice names[COUNT + 1];
    for (int index = 0; index < COUNT; index++) {
        snprintf(keys[index], sizeof keys[index], "batch-c-%d", index);
        snprintf(values[index], sizeof values[index], "value %d", index * index);
        names[index] = (farcore_slice){keys[index], strlen(keys[index])};
        pairs[index].key = names[index];
        pairs[index].value = (farcore_slice){values[index], strlen(values[index])};
    }
    names[COUNT] = (farcore_slice){"batch-c-absent", 14};

    farcore_batch *batch = NULL;
    check("put many", farcore_put_many(client, pairs, COUNT, &batch));
    printf("stored: %zu\n", done(batch));
    farcore_batch_free(batch);

    check("get many", farcore_get_many(client, names, COUNT + 1, &batch));
    printf("read: %zu\n", done(batch));
    for (size_t index = 0; index < COUNT; index++) {
        farcore_item item;
        check("item", farcore_batch_item(batch, index, &item));
        if (item.length != strlen(values[index]) ||
            memcmp(item.bytes, values[index], item.length) != 0) {
            fprintf(stderr, "outcome %zu has another value\n", index);
            return 1;
        }
    }
    farcore_batch_free(batch);

    check("delete many", farcore_delete_many(client, names, COUNT, &batch));
    printf("removed: %zu\n", done(batch));
    farcore_batch_free(batch);
    farcore_client_free(client);
    return 0;
}
