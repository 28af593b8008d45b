/* A counter that several clients raise at once: read, add, compare-and-swap, and again if another
 * client was faster.
 *
 *     ./counter tcp://127.0.0.1:7401 [token file]
 */
#include <farcore.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 50 };

static const char KEY[] = "counter-c";

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
}

/* Reads the counter and its version; both are 0 if there is none. */
static uint64_t read_counter(const farcore_client *client, uint64_t *version) {
    char text[32] = "";
    size_t length = 0;
    farcore_code code =
        farcore_get_into(client, KEY, strlen(KEY), text, sizeof text - 1, &length, version);
    if (code == FARCORE_NOT_FOUND) {
        *version = 0;
        return 0;
    }
    check("get", code);
    text[length] = '\0';
    return strtoull(text, NULL, 10);
}

static void add_one(const farcore_client *client) {
    for (;;) {
        uint64_t version = 0;
        uint64_t sum = read_counter(client, &version) + 1;
        char text[32];
        int length = snprintf(text, sizeof text, "%llu", (unsigned long long)sum);
        farcore_code code =
            farcore_compare_and_swap(client, KEY, strlen(KEY), text, (size_t)length, version, NULL);
        if (code != FARCORE_VERSION_MISMATCH) {
            check("compare and swap", code);
            return;
        }
    }
}

static void *raise_counter(void *client) {
    for (int round = 0; round < ROUNDS; round++) {
        add_one(client);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "tcp://127.0.0.1:7401";
    farcore_options *options = farcore_options_new();
    check("time limit", farcore_options_set_timeout_ms(options, 20000));
    if (argc > 2) {
        check("token", farcore_options_set_token_file(options, argv[2]));
    }
    farcore_client *client = NULL;
    check("connect", farcore_connect(address, options, &client));
    farcore_options_free(options);
    farcore_code code = farcore_delete(client, KEY, strlen(KEY));
    if (code != FARCORE_NOT_FOUND) {
        check("delete", code);
    }

    /* All threads share one client. */
    pthread_t threads[THREADS];
    for (int thread = 0; thread < THREADS; thread++) {
        if (pthread_create(&threads[thread], NULL, raise_counter, client) != 0) {
            fprintf(stderr, "a thread cannot start\n");
            return 1;
        }
    }
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_join(threads[thread], NULL);
    }
    uint64_t version = 0;
    printf("counter: %llu\n", (unsigned long long)read_counter(client, &version));
    farcore_client_free(client);
    return 0;
}
