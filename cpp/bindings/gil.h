// Giving the GIL away, and what happens to a thread that wants it back when there is none any more.
//
// When the interpreter ends, Python up to 3.13 ends a daemon thread that asks for the GIL by
// pthread_exit(), which unwinds its stack. C++ cannot be unwound like that: what must not throw, or
// catches everything, such as a binding, aborts the program. So here such a thread stops for ever,
// as it does by itself from Python 3.14 on; the program ends without it.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace envfleet {

// Calls what may ask for the GIL.
template <class Call>
auto surviving_the_interpreter(const Call& call) {
    try {
        return call();
#if defined(__GLIBCXX__) && PY_VERSION_HEX < 0x030E0000
    } catch (const abi::__forced_unwind&) {
        for (;;) pause();
#endif
    } catch (...) {
        throw;
    }
}

// While it lives other Python threads may run, and this one must not touch Python. To get the GIL
// back can take milliseconds where others use it.
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() {
        surviving_the_interpreter([this] { PyEval_RestoreThread(state_); });
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

  private:
    PyThreadState* state_;
};

}  // namespace envfleet
