// Turns and tickets passed between one caller and its workers through shared memory.
//
// A turn is for all of a worker's environments, a ticket for one of them:
//
//   caller                                          worker w
//   post(w, command) ── posted[w] += 1 ──▶ go ──▶ take(w): the command
//   wait_done()      ◀── done ◀── last one ─────── finish(w, status): finished[w] = posted[w]
//
//   send(w, ticket)  ── inbox[w] ───────▶ go ──▶ take(w): the ticket
//   wait_ready(k)    ◀── done ◀── the k-th one ─── publish(w, row, status) ──▶ outbox[w]
//
// The data of a turn lies elsewhere in the same block; the release/acquire pairs below publish it.
// The caller is rung for only when there is what it waits for, so that a turn costs at most one
// wake-up a side.
//
// Any worker may be killed at any instruction. So each number has one writer, nothing is counted
// down by several, and "all have finished" and "so many are ready" are worked out from the
// mailboxes each time. What a killed worker had not published it has not done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <new>
#include <tuple>

#include "engine/seats.h"
#include "engine/waiting.h"

namespace envfleet {

struct Mailbox {
    // The caller's line.
    alignas(64) std::atomic<uint32_t> posted{0};
    uint32_t command{0};
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> collected{0};
    uint32_t first_row{0};
    uint32_t rows{0};
    // The worker's line.
    alignas(64) std::atomic<uint32_t> finished{0};
    uint32_t status{0};
    std::atomic<uint64_t> taken{0};
    std::atomic<uint64_t> published{0};
    std::atomic<uint32_t> asleep{0};
    Seat seat;
};

// One environment's result, as its worker leaves it for the caller.
struct Result {
    Nanoseconds when;
    uint32_t row;
    uint32_t status;
};

// A place in the rings of a worker's mailbox, one an environment: none has more than one ticket
// out.
struct Slot {
    Result result;
    uint32_t ticket;
};

struct Lobby {
    Bell go;
    SharedBell done;
    alignas(64) std::atomic<uint32_t> wanted{0};
    Seat seat;
};

struct RowRange {
    uint32_t first;
    uint32_t count;
};

// A view on memory that all processes share; the memory outlives the view.
class Mailroom {
  public:
    static constexpr size_t bytes(uint32_t workers, uint32_t rows) {
        return sizeof(Lobby) + workers * sizeof(Mailbox) + rows * sizeof(Slot);
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

    // Which rows of the block a worker has; to be said before its first ticket.
    void assign(uint32_t w, RowRange rows) {
        boxes_[w].first_row = rows.first;
        boxes_[w].rows = rows.count;
    }
    RowRange assigned(uint32_t w) const { return {boxes_[w].first_row, boxes_[w].rows}; }

    // -- the caller's side: turns

    // Gives `command` to workers first..last-1. Each must have finished its previous turn.
    void post(uint32_t first, uint32_t last, uint32_t command) {
        uint32_t asleep = 0;
        lobby_->seat.take();
        for (uint32_t w = first; w < last; ++w) asleep |= post_one(w, command);
        if (asleep != 0) lobby_->go.ring(asleep);
        ++turns_;
    }

    // Gives the command of the turn under way once more, to a worker that took a dead one's place.
    void post_again(uint32_t w, uint32_t command) {
        if (const uint32_t asleep = post_one(w, command)) lobby_->go.ring(asleep);
    }

    // How often this side has posted. It counts in the same call, so that no interruption can come
    // between.
    uint64_t turns() const { return turns_; }

    bool wait_done(Patience patience, Nanoseconds deadline) {
        return wait([&] { return all_finished(); }, patience, deadline);
    }

    bool is_finished(uint32_t w) const {
        return boxes_[w].finished.load(std::memory_order_seq_cst) ==
               boxes_[w].posted.load(std::memory_order_seq_cst);
    }

    uint32_t status(uint32_t w) const { return boxes_[w].status; }

    // -- the caller's side: tickets

    // Gives a worker a ticket. It must not have more of them than rows.
    void send(uint32_t w, uint32_t ticket) {
        Mailbox& box = boxes_[w];
        const uint64_t sent = box.sent.load(std::memory_order_relaxed);
        slot(box, sent).ticket = ticket;
        box.sent.store(sent + 1, std::memory_order_seq_cst);
    }

    // Wakes those who sleep although they have tickets.
    void wake() {
        uint32_t asleep = 0;
        lobby_->seat.take();
        for (uint32_t w = 0; w < workers_; ++w) {
            const bool has_tickets = boxes_[w].sent.load(std::memory_order_relaxed) !=
                                     boxes_[w].taken.load(std::memory_order_relaxed);
            if (has_tickets && boxes_[w].asleep.load(std::memory_order_seq_cst)) asleep |= bit(w);
        }
        if (asleep != 0) lobby_->go.ring(asleep);
    }

    uint32_t num_ready() const {
        uint32_t ready = 0;
        for (uint32_t w = 0; w < workers_; ++w) ready += num_ready(w);
        return ready;
    }

    bool wait_ready(uint32_t count, Patience patience, Nanoseconds deadline) {
        lobby_->wanted.store(count, std::memory_order_seq_cst);
        return wait([&] { return num_ready() >= count; }, patience, deadline);
    }

    // Takes the oldest result out, whoever's it is; false if there is none.
    bool collect(Result& result, uint32_t& worker) {
        worker = workers_;
        Nanoseconds oldest = std::numeric_limits<Nanoseconds>::max();
        for (uint32_t w = 0; w < workers_; ++w) {
            if (num_ready(w) == 0) continue;
            const Nanoseconds when = front(w).when;
            if (when < oldest) oldest = when, worker = w;
        }
        if (worker == workers_) return false;
        result = front(worker);
        boxes_[worker].collected.fetch_add(1, std::memory_order_release);
        return true;
    }

    // How many turns and tickets a worker was given so far.
    std::tuple<uint32_t, uint64_t> received(uint32_t w) const {
        return {boxes_[w].posted.load(std::memory_order_relaxed),
                boxes_[w].sent.load(std::memory_order_relaxed)};
    }

    // Makes a dead worker's mailbox ready for another: what it had not
    // done, or what was not collected, is forgotten.
    void clear(uint32_t w) {
        Mailbox& box = boxes_[w];
        box.taken.store(box.sent.load(std::memory_order_relaxed), std::memory_order_relaxed);
        box.collected.store(box.published.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
        box.asleep.store(0, std::memory_order_relaxed);
        box.seat.leave();
        box.finished.store(box.posted.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    }

    // -- the worker's side

    // False: nothing yet, a signal arrived or the deadline passed. A turn goes before tickets.
    bool take(uint32_t w, Patience patience, Nanoseconds deadline, uint32_t& command,
              uint32_t& ticket) {
        Mailbox& box = boxes_[w];
        auto has_turn = [&] {
            return box.posted.load(std::memory_order_seq_cst) !=
                   box.finished.load(std::memory_order_relaxed);
        };
        auto has_ticket = [&] {
            return box.sent.load(std::memory_order_seq_cst) !=
                   box.taken.load(std::memory_order_relaxed);
        };
        const Sleeper me{lobby_->go, bit(w), box.asleep};
        auto has_work = [&] { return has_turn() || has_ticket(); };
        auto before_sleep = [&] { return leave_seat(box.seat); };
        if (!wait_until(me, has_work, patience, crowding_, deadline, before_sleep)) return false;
        sit_apart(box.seat, others_than(box.seat), crowding_);
        if (has_turn()) {
            command = box.command;
        } else {
            command = 0;
            const uint64_t taken = box.taken.load(std::memory_order_relaxed);
            ticket = slot(box, taken).ticket;
            box.taken.store(taken + 1, std::memory_order_relaxed);
        }
        return true;
    }

    void finish(uint32_t w, uint32_t status) {
        Mailbox& box = boxes_[w];
        box.status = status;
        box.finished.store(box.posted.load(std::memory_order_relaxed), std::memory_order_seq_cst);
        if (all_finished()) lobby_->done.ring();
    }

    void publish(uint32_t w, uint32_t row, uint32_t status) {
        Mailbox& box = boxes_[w];
        const uint64_t published = box.published.load(std::memory_order_relaxed);
        slot(box, published).result = {now(), row, status};
        box.published.store(published + 1, std::memory_order_seq_cst);
        if (num_ready() >= lobby_->wanted.load(std::memory_order_seq_cst)) lobby_->done.ring();
    }

  private:
    Mailroom(void* memory, uint32_t workers)
        : lobby_(static_cast<Lobby*>(memory)),
          boxes_(reinterpret_cast<Mailbox*>(lobby_ + 1)),
          slots_(reinterpret_cast<Slot*>(boxes_ + workers)),
          workers_(workers) {}

    // The caller's way to wait.
    template <class Ready>
    bool wait(Ready ready, Patience patience, Nanoseconds deadline) {
        auto before_sleep = [&] { return leave_seat(lobby_->seat); };
        return wait_until(lobby_->done.sleeper(), ready, patience, crowding_, deadline,
                          before_sleep);
    }

    cpu_set_t leave_seat(Seat& seat) const {
        seat.leave();
        return others_than(seat);
    }

    cpu_set_t others_than(const Seat& seat) const {
        cpu_set_t cores = no_cores();
        if (&seat != &lobby_->seat) lobby_->seat.add_to(cores);
        for (uint32_t w = 0; w < workers_; ++w) {
            if (&seat != &boxes_[w].seat) boxes_[w].seat.add_to(cores);
        }
        return cores;
    }

    static uint32_t bit(uint32_t w) { return 1u << (w % 32); }

    // Returns the bit to ring for, 0 if the worker is awake.
    uint32_t post_one(uint32_t w, uint32_t command) {
        Mailbox& box = boxes_[w];
        box.command = command;
        box.posted.fetch_add(1, std::memory_order_seq_cst);
        return box.asleep.load(std::memory_order_seq_cst) ? bit(w) : 0;
    }

    bool all_finished() const {
        for (uint32_t w = 0; w < workers_; ++w) {
            if (!is_finished(w)) return false;
        }
        return true;
    }

    uint32_t num_ready(uint32_t w) const {
        return static_cast<uint32_t>(boxes_[w].published.load(std::memory_order_seq_cst) -
                                     boxes_[w].collected.load(std::memory_order_relaxed));
    }

    const Result& front(uint32_t w) const {
        const Mailbox& box = boxes_[w];
        return slots_[box.first_row + box.collected.load(std::memory_order_relaxed) % box.rows]
            .result;
    }

    Slot& slot(const Mailbox& box, uint64_t number) {
        return slots_[box.first_row + number % box.rows];
    }

    Lobby* lobby_;
    Mailbox* boxes_;
    Slot* slots_;
    uint32_t workers_;
    uint64_t turns_ = 0;
    Crowding crowding_;  // of this process
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics in shared memory need no locks");

}  // namespace envfleet
