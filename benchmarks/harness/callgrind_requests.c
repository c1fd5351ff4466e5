/* What a program under callgrind tells it: count from here, and write down what was counted. */
#include <valgrind/callgrind.h>

void begin_counting(void) {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void end_counting(const char *name) {
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
