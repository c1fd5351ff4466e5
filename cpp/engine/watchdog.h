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
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

namespace envfleet {

// To be called by the main thread: the kernel forgets what another asked for when that one ends.
inline void exit_with_process(int pid) {
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd == -1) {
        if (errno == ESRCH) _exit(1);
        throw std::system_error(errno, std::generic_category(), "pidfd_open");
    }
    std::thread([pidfd] {
        pollfd watched{pidfd, POLLIN, 0};
        while (poll(&watched, 1, -1) == -1 && errno == EINTR) {
        }
        _exit(1);
    }).detach();
}

}  // namespace envfleet
