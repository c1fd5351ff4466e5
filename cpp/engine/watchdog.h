// Ends this process as soon as another one ends, whatever this one is busy with.
//
// A thread in poll() on a pidfd costs nothing, needs no GIL, and, unlike PR_SET_PDEATHSIG, is not
// fooled when the *thread* that started the worker ends while its process lives on.
//
// A stopped process (SIGSTOP) has no thread that runs. So the kernel is asked to continue it when
// its parent ends; the thread then sees whether that was the end it waits for. SIGCONT does nothing
// to a process that was not stopped, so here it does no harm to be fooled.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace envfleet {

// Where the kernel has no pidfds, or a sandbox forbids them: looks now and then whether `pid`
// lives. A child of `pid` sees its end by having another parent; anybody else by there being no
// such pid.
inline void look_until_gone(int pid, bool is_parent) {
    while (is_parent ? getppid() == pid : kill(pid, 0) == 0 || errno == EPERM) {
        poll(nullptr, 0, 500);
    }
}

// To be called by the main thread: the kernel forgets what another asked for when that one ends.
inline void exit_with_process(int pid) {
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd == -1 && errno == ESRCH) _exit(1);
    const bool is_parent = getppid() == pid;
    std::thread watcher([pid, pidfd, is_parent] {
        if (pidfd == -1) {
            look_until_gone(pid, is_parent);
        } else {
            pollfd watched{pidfd, POLLIN, 0};
            while (poll(&watched, 1, -1) == -1 && errno == EINTR) {
            }
        }
        _exit(1);
    });
    // By this name whoever looks for threads knows that this one does not matter to a fork.
    pthread_setname_np(watcher.native_handle(), "envfleet-watch");
    watcher.detach();
}

}  // namespace envfleet
