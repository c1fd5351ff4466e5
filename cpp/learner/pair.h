// Two halves of a task, side by side in two threads or one after the other in one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace envfleet::learner {

// The second thread is there for as long as this is, and waits in between. The waits are short: it
// looks a while before it goes to sleep.
class Pair {
  public:
    explicit Pair(bool two_threads) {
        if (two_threads) {
            helper_ = std::thread([this] { serve(); });
        }
    }
    Pair(const Pair&) = delete;
    ~Pair() {
        if (!helper_.joinable()) return;
        task_ = nullptr;
        asked_.fetch_add(1, std::memory_order_release);
        asked_.notify_one();
        helper_.join();
    }

    // task(0) and task(1), both done when this returns; they must not throw.
    void run(const std::function<void(int)>& task) {
        if (!helper_.joinable()) {
            task(0);
            task(1);
            return;
        }
        task_ = &task;
        const uint32_t turn = asked_.fetch_add(1, std::memory_order_release) + 1;
        asked_.notify_one();
        task(0);
        wait_for(done_, turn);
    }

  private:
    static constexpr int looks = 2'000;

    // Until `value` is `wanted`.
    static void wait_for(const std::atomic<uint32_t>& value, uint32_t wanted) {
        for (int i = 0; i < looks; ++i) {
            if (value.load(std::memory_order_acquire) == wanted) return;
            pause();
        }
        for (uint32_t seen; (seen = value.load(std::memory_order_acquire)) != wanted;) {
            value.wait(seen, std::memory_order_acquire);
        }
    }

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    void serve() {
        for (uint32_t turn = 1;; ++turn) {
            wait_for(asked_, turn);
            if (task_ == nullptr) return;
            (*task_)(1);
            done_.store(turn, std::memory_order_release);
            done_.notify_one();
        }
    }

    std::atomic<uint32_t> asked_ = 0, done_ = 0;
    const std::function<void(int)>* task_ = nullptr;
    std::thread helper_;
};

}  // namespace envfleet::learner
