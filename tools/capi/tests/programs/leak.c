/* Planted faults, which the sanitizers must find: values that are not freed, and one that is used
 * late.
 *
 *     leak ADDRESS TOKEN-FILE leak|late
 */
#include <farcore.h>
#include <stdio.h>
#include <string.h>

/* One address that is left in a register or on the stack hides its leak, not those of all. */
enum { LEAKS = 100 };

static int leak(const farcore_client *client) {
    for (int round = 0; round < LEAKS; round++) {
        farcore_value value;
        if (farcore_get(client, "k", 1, &value) != FARCORE_OK) {
            return 3;
        }
    }
    return 0;
}

static int use_late(const farcore_client *client) {
    farcore_value value;
    if (farcore_get(client, "k", 1, &value) != FARCORE_OK) {
        return 3;
    }
    const uint8_t *bytes = value.bytes;
    farcore_value_free(&value);
    return bytes[0] == 'v' ? 0 : 4;
}

int main(int argc, char **argv) {
    farcore_options *options = farcore_options_new();
    farcore_client *client = NULL;
    if (argc != 4 || farcore_options_set_token_file(options, argv[2]) != FARCORE_OK ||
        farcore_connect(argv[1], options, &client) != FARCORE_OK ||
        farcore_put(client, "k", 1, "value", 5, NULL) != FARCORE_OK) {
        fprintf(stderr, "%s\n", farcore_error_message());
        return 3;
    }
    farcore_options_free(options);
    int code = strcmp(argv[3], "late") == 0 ? use_late(client) : leak(client);
    farcore_client_free(client);
    return code;
}
