/* Counts what is not as the tests expect. */
#ifndef EXPECT_H
#define EXPECT_H

#include <farcore.h>
#include <stdio.h>
#include <string.h>

static int wrong, checked;

static inline void expect_at(int line, const char *call, farcore_code code, farcore_code expected,
                      const char *text) {
    checked++;
    if (code != expected) {
        fprintf(stderr, "line %d: %s: %d instead of %d: %s\n", line, call, (int)code, (int)expected,
                farcore_error_message());
        wrong++;
    } else if (code < 0 && strstr(farcore_error_message(), text) == NULL) {
        fprintf(stderr, "line %d: %s: the text is '%s'\n", line, call, farcore_error_message());
        wrong++;
    }
}

/* A call has a code, and its error a text with some words. */
#define EXPECT(call, expected, text) expect_at(__LINE__, #call, (call), (expected), (text))

static inline void hold_at(int line, const char *what, int holds) {
    checked++;
    if (!holds) {
        fprintf(stderr, "line %d: not so: %s\n", line, what);
        wrong++;
    }
}

#define HOLDS(condition) hold_at(__LINE__, #condition, (condition))

#endif
