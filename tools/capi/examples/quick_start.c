/* Stores a value, reads it back, and removes it.
 *
 *     cc quick_start.c $(pkg-config --cflags --libs farcore) -o quick_start
 *     ./quick_start tcp://127.0.0.1:7401 [token file]
 */
#include <farcore.h>
#include <stdio.h>
#include <stdlib.h>

static void check(const char *what, farcore_code code) {
    if (code != FARCORE_OK) {
        fprintf(stderr, "%s: %d: %s\n", what, (int)code, farcore_error_message());
        exit(1);
    }
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

    uint64_t version = 0;
    check("put", farcore_put(client, "greeting", 8, "hello", 5, &version));

    farcore_value value;
    check("get", farcore_get(client, "greeting", 8, &value));
    printf("%.*s, version %s\n", (int)value.length, (const char *)value.bytes,
           value.version == version ? "as stored" : "of another put");
    farcore_value_free(&value);

    /* Into memory of the caller: no allocation, if the value fits. */
    char buffer[64];
    size_t length = 0;
    check("get", farcore_get_into(client, "greeting", 8, buffer, sizeof buffer, &length, NULL));
    printf("%zu bytes\n", length);

    /* In a minute the key expires by itself. */
    check("expire", farcore_expire(client, "greeting", 8, FARCORE_EXPIRY_IN, 60000,
                                   FARCORE_EXPIRY_CONDITION_ALWAYS));
    farcore_metadata metadata;
    check("inspect", farcore_inspect(client, "greeting", 8, &metadata));
    printf("expires: %s\n", metadata.expiry_ms == FARCORE_NEVER ? "never" : "yes");

    check("delete", farcore_delete(client, "greeting", 8));
    printf("exists: %s\n",
           farcore_exists(client, "greeting", 8) == FARCORE_NOT_FOUND ? "no" : "yes");
    farcore_client_free(client);
    return 0;
}
