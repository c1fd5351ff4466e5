// Ends copies of this process that come back to work which is not theirs.
//
// An environment may fork, and what it forks may return from its step() instead of ending. That
// copy would write the same rows as this process and answer in its place. So in a copy the shared
// block can be read but not written: the first attempt ends the copy at once, and one number in the
// block says that it happened. This costs nothing while nobody forks, and nothing to copies that
// mind their own business.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace envfleet {

class ForkedCopyGuard {
  public:
    // The block, and a line of it for each row: `cells` apart, the first of which counts progress
    // (its lower half is the row at work), and the third of which is where copies of that row are
    // counted.
    static void protect(void* begin, size_t size, uint64_t* progress, size_t rows, size_t cells) {
        Guarded& guarded = state();
        const bool first_time = guarded.begin == nullptr;
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        guarded = {static_cast<char*>(begin),
                   (size + page - 1) / page * page,
                   progress,
                   rows,
                   cells,
                   0,
                   false};
        if (first_time) pthread_atfork(before_fork, nullptr, in_copy);
    }

  private:
    struct Guarded {
        char* begin = nullptr;
        size_t size = 0;
        uint64_t* progress = nullptr;
        size_t rows = 0, cells = 0;
        size_t row_at_fork = 0;
        bool is_copy = false;
    };

    static Guarded& state() {
        static Guarded guarded;
        return guarded;
    }

    static void before_fork() {
        Guarded& guarded = state();
        if (guarded.is_copy) return;
        const uint64_t row = std::atomic_ref(guarded.progress[0]).load() & 0xffffffffu;
        guarded.row_at_fork = row < guarded.rows ? row : guarded.rows;
    }

    static void in_copy() {
        Guarded& guarded = state();
        guarded.is_copy = true;
        if (mprotect(guarded.begin, guarded.size, PROT_READ) != 0) return;
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_RESETHAND;
        sigaction(SIGSEGV, &action, nullptr);
    }

    static void on_fault(int, siginfo_t* info, void*) {
        const Guarded& guarded = state();
        const auto* address = static_cast<const char*>(info->si_addr);
        // Any other fault: the copy goes on, and meets it again without this handler.
        if (address < guarded.begin || address >= guarded.begin + guarded.size) return;
        if (guarded.row_at_fork < guarded.rows &&
            mprotect(guarded.begin, guarded.size, PROT_READ | PROT_WRITE) == 0) {
            std::atomic_ref(guarded.progress[guarded.row_at_fork * guarded.cells + 2]).fetch_add(1);
        }
        _exit(1);
    }
};

}  // namespace envfleet
