// Turns passed between one caller and its workers through shared memory.
//
//   caller                                       worker w
//   post(w, command) ── posted[w] += 1 ──▶ go ──▶ take(w) returns the command
//   wait_done()      ◀── done ◀── last one ────── finish(w, status): finished[w] = posted[w]
//
// The data of a turn lies elsewhere in the same block; the release/acquire pairs below publish it.
// Only the last worker to finish rings for the caller, so a turn costs at most one wake-up a side.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "engine/waiting.h"

namespace envfleet {

struct alignas(64) Mailbox {
    std::atomic<uint32_t> posted{0};
    std::atomic<uint32_t> finished{0};
    uint32_t command{0};
    uint32_t status{0};
};

struct Lobby {
    Bell go;
    Bell done;
    alignas(64) std::atomic<uint32_t> outstanding{0};
};

// A view on memory that all processes share; the memory outlives the view.
class Mailroom {
  public:
    static constexpr size_t bytes(uint32_t workers) {
        return sizeof(Lobby) + workers * sizeof(Mailbox);
    }

    // The creator lays the room out; workers attach to it.
    static Mailroom create(void* memory, uint32_t workers) {
        new (memory) Lobby;
        Mailroom room(memory, workers);
        for (uint32_t w = 0; w < workers; ++w) new (&room.boxes_[w]) Mailbox;
        return room;
    }
    static Mailroom attach(void* memory, uint32_t workers) { return Mailroom(memory, workers); }

    uint32_t workers() const { return workers_; }

    // Gives `command` to workers first..last-1. Each must have finished its previous turn.
    void post(uint32_t first, uint32_t last, uint32_t command) {
        lobby_->outstanding.store(last - first, std::memory_order_relaxed);
        for (uint32_t w = first; w < last; ++w) {
            boxes_[w].command = command;
            boxes_[w].posted.fetch_add(1, std::memory_order_release);
        }
        lobby_->go.ring();
        ++turns_;
    }

    // How often this side has posted. It counts in the same call, so that no interruption can come
    // between.
    uint64_t turns() const { return turns_; }

    bool wait_done(Patience patience, Nanoseconds deadline) {
        auto& outstanding = lobby_->outstanding;
        auto ready = [&] { return outstanding.load(std::memory_order_acquire) == 0; };
        return wait_until(lobby_->done, ready, patience, deadline);
    }

    bool is_finished(uint32_t w) const {
        return boxes_[w].finished.load(std::memory_order_acquire) ==
               boxes_[w].posted.load(std::memory_order_relaxed);
    }

    uint32_t status(uint32_t w) const { return boxes_[w].status; }

    // Worker's side. False: nothing yet, a signal arrived or the deadline passed.
    bool take(uint32_t w, Patience patience, Nanoseconds deadline, uint32_t& command) {
        Mailbox& box = boxes_[w];
        auto ready = [&] {
            return box.posted.load(std::memory_order_acquire) !=
                   box.finished.load(std::memory_order_relaxed);
        };
        if (!wait_until(lobby_->go, ready, patience, deadline)) return false;
        command = box.command;
        return true;
    }

    void finish(uint32_t w, uint32_t status) {
        Mailbox& box = boxes_[w];
        box.status = status;
        box.finished.store(box.posted.load(std::memory_order_relaxed), std::memory_order_release);
        if (lobby_->outstanding.fetch_sub(1, std::memory_order_acq_rel) == 1) lobby_->done.ring();
    }

  private:
    Mailroom(void* memory, uint32_t workers)
        : lobby_(static_cast<Lobby*>(memory)),
          boxes_(reinterpret_cast<Mailbox*>(lobby_ + 1)),
          workers_(workers) {}

    Lobby* lobby_;
    Mailbox* boxes_;
    uint32_t workers_;
    uint64_t turns_ = 0;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "atomics in shared memory need no locks");

}  // namespace envfleet
