/* Keeps several operations under way, and takes each outcome when it is there: the thread never
 * blocks while it has other work.
 *
 *     ./pipeline tcp://127.0.0.1:7401 [token file]
 */
#include <farcore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, COUNT = 500 };

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

static size_t key_of(char *key, size_t capacity, int number) {
    return (size_t)snprintf(key, capacity, "pipeline-c-%d", number);
}

/* Submits a put or a get of a number's key. The library copies key and value. */
static farcore_operation *submit(const farcore_client *client, int number, int reads) {
    char key[32], value[32];
    size_t key_length = key_of(key, sizeof key, number);
    size_t value_length = (size_t)snprintf(value, sizeof value, "%d", number);
    farcore_operation *operation = NULL;
    if (reads) {
        check("submit", farcore_submit_get(client, key, key_length, &operation));
    } else {
        check("submit",
              farcore_submit_put(client, key, key_length, value, value_length, &operation));
    }
    return operation;
}

/* Takes the outcome of an operation that has ended; whether it is what is expected. */
static int finish(farcore_operation *operation, int number, int reads) {
    int is_right = 1;
    check("outcome", farcore_poll(operation));
    if (reads) {
        char expected[32];
        size_t length = (size_t)snprintf(expected, sizeof expected, "%d", number);
        farcore_value value;
        check("value", farcore_operation_take_value(operation, &value));
        is_right = value.length == length && memcmp(value.bytes, expected, length) == 0;
        farcore_value_free(&value);
    }
    farcore_operation_free(operation);
    return is_right;
}

/* Runs all operations of one kind; how many had the right outcome. */
static int run(const farcore_client *client, int reads) {
    farcore_operation *window[WINDOW] = {NULL};
    int number[WINDOW] = {0}, submitted = 0, ended = 0, right = 0;
    while (ended < COUNT) {
        for (int place = 0; place < WINDOW; place++) {
            if (window[place] != NULL && farcore_poll(window[place]) != FARCORE_PENDING) {
                right += finish(window[place], number[place], reads);
                window[place] = NULL;
                ended++;
            }
            if (window[place] == NULL && submitted < COUNT) {
                window[place] = submit(client, submitted, reads);
                number[place] = submitted++;
            }
        }
        /* Other work of the program belongs here. Without any, wait for one, a millisecond at
         * most. */
        if (window[0] != NULL) {
            farcore_wait(window[0], 1);
        }
    }
    return right;
}

int main(int argc, char **argv) {
    farcore_client *client = connect_to(argc, argv);
    printf("stored: %d\n", run(client, 0));
    printf("read: %d\n", run(client, 1));
    farcore_client_free(client);
    return 0;
}
