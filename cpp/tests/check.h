// The smallest test framework that does: a failed check says where and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

inline void check(bool holds, const std::source_location where = std::source_location::current()) {
    if (holds) return;
    std::fprintf(stderr, "%s:%u: check failed\n", where.file_name(), where.line());
    std::exit(1);
}
