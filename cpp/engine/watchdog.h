// Ends this process as soon as another one ends, whatever this one is busy with.
//
// A thread that waits for that end needs no GIL and, unlike PR_SET_PDEATHSIG, is not fooled when
// the *thread* that started the worker ends while its process lives on. But a stopped process
// (SIGSTOP) has no thread that runs. So the kernel is asked to continue it when its parent ends;
// the thread then sees whether that was the end it waits for.
#pragma once

#include <unistd.h>

#include <thread>

#include "engine/cores.h"
#include "engine/waiting.h"

namespace envfleet {

// To be called by the main thread.
inline void exit_with_process(int pid) {
    be_continued_at_parents_end();
    const ProcessEnd end(pid);
    if (end.is_past()) _exit(1);
    std::thread watcher([end] {
        end.wait();
        _exit(1);
    });
    // By this name whoever looks for threads knows that this one does not matter to a fork.
    name_thread(watcher, "envfleet-watch");
    watcher.detach();
}

}  // namespace envfleet
