// Stands in for Python's header where Box2D is compiled: the sources Gymnasium's package is made of
// report failed assertions as Python exceptions. These become C++ ones.
#pragma once

#include <stdexcept>
#include <string>

inline constexpr int PyExc_AssertionError = 0;

[[noreturn]] inline void PyErr_SetString(int, const char* assertion) {
    throw std::runtime_error(std::string("Box2D expected ") + assertion);
}
