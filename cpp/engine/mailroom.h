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
//
// And any worker may write anything anywhere: environments run code that nobody has checked. So
// each side keeps to itself what it knows (`Known`) and believes of the memory only what can follow
// from that. Numbers count from anywhere, and say together with what they count what it is about:
// no zeros, no pattern and hardly any chance looks like one of them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <new>
#include <tuple>
#include <vector>

#include "engine/cores.h"
#include "engine/mailbox.h"
#include "engine/waiting.h"

namespace envfleet {

// A view on memory that all processes share; the memory outlives the view.
class Mailroom {
  public:
    static constexpr size_t bytes(uint32_t workers, uint32_t rows) {
        return sizeof(Lobby) + workers * sizeof(Mailbox) + rows * sizeof(Slot);
    }

    // The creator lays the room out; workers attach to it.
    static Mailroom create(void* memory, uint32_t workers, uint32_t rows) {
        new (memory) Lobby;
        Mailroom room(memory, workers, rows);
        for (uint32_t w = 0; w < workers; ++w) {
            new (&room.boxes_[w]) Mailbox;
            room.known_[w] = Known::beginning(anything() + w);
            room.clear(w);
        }
        return room;
    }
    static Mailroom attach(void* memory, uint32_t workers, uint32_t rows) {
        Mailroom room(memory, workers, rows);
        for (uint32_t w = 0; w < workers; ++w) room.known_[w] = room.read(w);
        return room;
    }

    uint32_t workers() const { return workers_; }

    // Which rows of the block a worker has; to be said before its first ticket.
    void assign(uint32_t w, RowRange rows) {
        known_[w].rows = rows;
        write_rows(w);
    }
    RowRange assigned(uint32_t w) const { return known_[w].rows; }

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
        if (wait([&] { return all_finished(); }, patience, deadline)) return true;
        ring_again([&](uint32_t w) { return !is_finished(w); });
        return false;
    }

    bool is_finished(uint32_t w) const { return finished(w).is_same_turn(known_[w].posted); }

    uint32_t status(uint32_t w) const { return finished(w).said(); }

    // Whether all workers finished their last turns with this status.
    bool is_silent(uint32_t silence) const {
        for (uint32_t w = 0; w < workers_; ++w) {
            const TurnWord word = finished(w);
            if (word.said() != silence || !word.is_same_turn(known_[w].posted)) return false;
        }
        return true;
    }

    // Whether somebody has written what neither this worker nor the caller can have.
    bool is_garbled(uint32_t w) const {
        const Known& known = known_[w];
        const Mailbox& box = boxes_[w];
        const TurnWord now = finished(w);
        const bool plausible =
            now.is_same_turn(known.posted) || now.next(0).is_same_turn(known.posted);
        const bool ours = box.posted.load(std::memory_order_relaxed) == known.posted.bits() &&
                          box.sent.load(std::memory_order_relaxed) == known.sent &&
                          box.collected.load(std::memory_order_relaxed) == known.collected &&
                          box.first_row == known.rows.first && box.rows == known.rows.count;
        return known.garbled || !plausible || !ours || unread(w) > num_out(w);
    }

    // -- the caller's side: tickets

    // Gives a worker a ticket. It must not have more of them than rows.
    void send(uint32_t w, uint32_t ticket) {
        Known& known = known_[w];
        slot(known, known.sent).ticket = numbered(known.sent, ticket);
        boxes_[w].sent.store(++known.sent, std::memory_order_seq_cst);
    }

    // Wakes those who sleep although they have tickets.
    void wake() {
        uint32_t asleep = 0;
        lobby_->seat.take();
        for (uint32_t w = 0; w < workers_; ++w) {
            const bool has_tickets =
                known_[w].sent != boxes_[w].taken.load(std::memory_order_relaxed);
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
        if (wait([&] { return num_ready() >= count; }, patience, deadline)) return true;
        ring_again([&](uint32_t w) { return num_out(w) != 0; });
        return false;
    }

    // Takes the oldest result out, whoever's it is; false if there is none. Those of a worker whose
    // mailbox is garbled are left.
    bool collect(Result& result, uint32_t& worker) {
        worker = workers_;
        for (uint32_t w = 0; w < workers_; ++w) {
            if (num_ready(w) == 0) continue;
            const Known& known = known_[w];
            const Result front = slot(known, known.collected).result;
            if (front.number != known.collected || !known.rows.contains(front.row)) {
                note_garbage(w);
            } else if (worker == workers_ || front.when < result.when) {
                result = front;
                worker = w;
            }
        }
        if (worker == workers_) return false;
        boxes_[worker].collected.store(++known_[worker].collected, std::memory_order_release);
        return true;
    }

    // From now on nothing that this worker publishes is believed, until it is cleared.
    void note_garbage(uint32_t w) { known_[w].garbled = true; }

    // How many turns and tickets a worker was given so far.
    std::tuple<uint64_t, uint64_t> received(uint32_t w) const {
        return {known_[w].posted.bits(), known_[w].sent};
    }

    // Makes a dead worker's mailbox ready for another: what it had not
    // done, or what was not collected, is forgotten.
    void clear(uint32_t w) {
        Known& known = known_[w];
        known = Known::after(known);
        Mailbox& box = boxes_[w];
        write_rows(w);
        box.posted.store(known.posted.bits(), std::memory_order_relaxed);
        box.sent.store(known.sent, std::memory_order_relaxed);
        box.collected.store(known.collected, std::memory_order_relaxed);
        box.taken.store(known.taken, std::memory_order_relaxed);
        box.published.store(known.published, std::memory_order_relaxed);
        box.asleep.store(0, std::memory_order_relaxed);
        box.seat.leave();
        box.finished.store(known.finished.bits(), std::memory_order_seq_cst);
    }

    // -- the worker's side

    // False: nothing yet, a signal arrived or the deadline passed. A turn goes before tickets.
    bool take(uint32_t w, Patience patience, Nanoseconds deadline, uint32_t& command,
              uint32_t& ticket) {
        Mailbox& box = boxes_[w];
        Known& known = known_[w];
        auto has_turn = [&] { return !posted(w).is_same_turn(known.finished); };
        auto has_ticket = [&] { return box.sent.load(std::memory_order_seq_cst) != known.taken; };
        const Sleeper me{lobby_->go, bit(w), box.asleep};
        auto has_work = [&] { return has_turn() || has_ticket(); };
        auto before_sleep = [&] { return leave_seat(box.seat); };
        if (!wait_until(me, has_work, patience, crowding_, deadline, before_sleep)) return false;
        sit_apart(box.seat, others_than(box.seat), crowding_);
        if (has_turn()) {
            command = take_turn(w);
        } else {
            command = 0;
            ticket = take_ticket(w);
        }
        return true;
    }

    void finish(uint32_t w, uint32_t status) {
        Known& known = known_[w];
        known.finished = known.begun.with(status);
        boxes_[w].finished.store(known.finished.bits(), std::memory_order_seq_cst);
        if (all_seem_finished()) lobby_->done.ring();
    }

    void publish(uint32_t w, uint32_t row, uint32_t status) {
        Known& known = known_[w];
        slot(known, known.published).result = {known.published, now(), row, status};
        boxes_[w].published.store(++known.published, std::memory_order_seq_cst);
        if (num_seem_ready() >= lobby_->wanted.load(std::memory_order_seq_cst)) {
            lobby_->done.ring();
        }
    }

  private:
    // What one side knows of a worker without asking the memory: the caller the first half, the
    // worker the second.
    struct Known {
        RowRange rows{0, 0};
        TurnWord posted;
        uint64_t sent = 0;
        uint64_t collected = 0;
        bool garbled = false;

        TurnWord finished;
        TurnWord begun;  // the turn that was taken last
        uint64_t taken = 0;
        uint64_t published = 0;

        static Known beginning(uint64_t number) {
            Known known;
            known.posted = TurnWord(number, 0);
            known.sent = number;
            return known;
        }
        // As it is once everything that was asked for is done or forgotten.
        static Known after(const Known& before) {
            Known known = beginning(before.sent);
            known.rows = before.rows;
            known.posted = before.posted;
            known.finished = known.begun = before.posted.with(0);
            known.collected = known.taken = known.published = before.sent;
            return known;
        }
    };

    Mailroom(void* memory, uint32_t workers, uint32_t rows)
        : lobby_(static_cast<Lobby*>(memory)),
          boxes_(reinterpret_cast<Mailbox*>(lobby_ + 1)),
          slots_(reinterpret_cast<Slot*>(boxes_ + workers)),
          workers_(workers),
          rows_(rows),
          known_(workers) {}

    // A number to count from.
    static uint64_t anything() {
        uint64_t mixed =
            static_cast<uint64_t>(now()) + static_cast<uint64_t>(getpid()) * 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
        return mixed ^ mixed >> 31;
    }

    // What one who comes later can know.
    Known read(uint32_t w) const {
        const Mailbox& box = boxes_[w];
        Known known;
        known.rows = {box.first_row, box.rows};
        const bool exist =
            known.rows.first <= rows_ && known.rows.count <= rows_ - known.rows.first;
        if (!exist) known.rows = {0, 0};
        known.posted = posted(w);
        known.sent = box.sent.load(std::memory_order_seq_cst);
        known.collected = box.collected.load(std::memory_order_relaxed);
        known.finished = known.begun = finished(w);
        known.taken = box.taken.load(std::memory_order_relaxed);
        known.published = box.published.load(std::memory_order_relaxed);
        return known;
    }

    void write_rows(uint32_t w) {
        boxes_[w].first_row = known_[w].rows.first;
        boxes_[w].rows = known_[w].rows.count;
    }

    TurnWord posted(uint32_t w) const {
        return TurnWord(boxes_[w].posted.load(std::memory_order_seq_cst));
    }
    TurnWord finished(uint32_t w) const {
        return TurnWord(boxes_[w].finished.load(std::memory_order_seq_cst));
    }

    uint32_t take_turn(uint32_t w) {
        Known& known = known_[w];
        const TurnWord word = posted(w);
        if (!word.is_same_turn(known.finished.next(0)) || word.said() == 0) throw GarbledError();
        known.begun = word;
        return word.said();
    }

    uint32_t take_ticket(uint32_t w) {
        Known& known = known_[w];
        const uint64_t sent = boxes_[w].sent.load(std::memory_order_seq_cst);
        if (sent - known.taken > known.rows.count) throw GarbledError();
        const uint64_t found = slot(known, known.taken).ticket;
        const auto ticket = static_cast<uint32_t>(found);
        if (found != numbered(known.taken, ticket)) throw GarbledError();
        boxes_[w].taken.store(++known.taken, std::memory_order_relaxed);
        return ticket;
    }

    static uint64_t numbered(uint64_t number, uint32_t ticket) { return number << 32 | ticket; }

    // The caller's way to wait.
    template <class Ready>
    bool wait(Ready ready, Patience patience, Nanoseconds deadline) {
        auto before_sleep = [&] { return leave_seat(lobby_->seat); };
        return wait_until(lobby_->done.sleeper(), ready, patience, crowding_, deadline,
                          before_sleep);
    }

    // A worker that sleeps although the memory says that it is awake would never hear of its work.
    template <class Awaited>
    void ring_again(Awaited awaited) {
        uint32_t whom = 0;
        for (uint32_t w = 0; w < workers_; ++w) whom |= awaited(w) ? bit(w) : 0;
        if (whom != 0) lobby_->go.ring(whom);
    }

    Cores leave_seat(Seat& seat) const {
        seat.leave();
        return others_than(seat);
    }

    Cores others_than(const Seat& seat) const {
        Cores cores;
        if (&seat != &lobby_->seat) lobby_->seat.add_to(cores);
        for (uint32_t w = 0; w < workers_; ++w) {
            if (&seat != &boxes_[w].seat) boxes_[w].seat.add_to(cores);
        }
        return cores;
    }

    static uint32_t bit(uint32_t w) { return 1u << (w % 32); }

    // Returns the bit to ring for, 0 if the worker is awake.
    uint32_t post_one(uint32_t w, uint32_t command) {
        known_[w].posted = known_[w].posted.next(command);
        boxes_[w].posted.store(known_[w].posted.bits(), std::memory_order_seq_cst);
        return boxes_[w].asleep.load(std::memory_order_seq_cst) ? bit(w) : 0;
    }

    bool all_finished() const {
        for (uint32_t w = 0; w < workers_; ++w) {
            if (!is_finished(w)) return false;
        }
        return true;
    }

    // The same as far as a worker can tell of the others.
    bool all_seem_finished() const {
        for (uint32_t w = 0; w < workers_; ++w) {
            if (!finished(w).is_same_turn(posted(w))) return false;
        }
        return true;
    }

    // Tickets that were sent and whose results were not collected.
    uint64_t num_out(uint32_t w) const { return known_[w].sent - known_[w].collected; }

    uint64_t unread(uint32_t w) const {
        return boxes_[w].published.load(std::memory_order_seq_cst) - known_[w].collected;
    }

    uint32_t num_ready(uint32_t w) const {
        const uint64_t ready = unread(w);
        const bool believable = ready <= num_out(w) && !known_[w].garbled;
        return believable ? static_cast<uint32_t>(ready) : 0;
    }

    // As far as a worker can tell.
    uint64_t num_seem_ready() const {
        uint64_t ready = 0;
        for (uint32_t w = 0; w < workers_; ++w) {
            ready += boxes_[w].published.load(std::memory_order_seq_cst) -
                     boxes_[w].collected.load(std::memory_order_relaxed);
        }
        return ready;
    }

    Slot& slot(const Known& known, uint64_t number) const {
        if (known.rows.count == 0) throw GarbledError();  // or nobody has assigned any
        return slots_[known.rows.first + number % known.rows.count];
    }

    Lobby* lobby_;
    Mailbox* boxes_;
    Slot* slots_;
    uint32_t workers_;
    uint32_t rows_;
    uint64_t turns_ = 0;
    std::vector<Known> known_;  // one per worker
    Crowding crowding_;         // of this process
};

}  // namespace envfleet
