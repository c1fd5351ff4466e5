// The mailroom behind checks: nothing Python passes in, nor what workers write, can crash it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings/gil.h"
#include "engine/mailroom.h"

namespace envfleet {

namespace nb = nanobind;

inline Nanoseconds nanoseconds(double seconds) {
    constexpr double longest = 1e9;  // thirty years: as good as for ever, and far from overflow
    if (std::isnan(seconds)) throw nb::value_error("a time must be a number");
    return static_cast<Nanoseconds>(std::clamp(seconds, 0.0, longest) * 1e9);
}

inline Patience patience(double pause, double yield) {
    return {nanoseconds(pause), nanoseconds(yield)};
}

// What `take` returns: a command as it is, a ticket from here on: first_ticket + 4 * row + kind.
inline constexpr uint32_t first_ticket = 1u << 16;
static_assert(first_ticket - 1 <= TurnWord::most_said);
inline constexpr uint32_t ticket_kinds = 4;

// Keeps the memory alive and refuses workers and rows that do not exist.
class PyMailroom {
  public:
    using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Rows = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Statuses = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    PyMailroom(Memory memory, uint32_t workers, uint32_t rows, bool create)
        : memory_(std::move(memory)),
          room_(create ? Mailroom::create(checked(memory_, workers, rows), workers, rows)
                       : Mailroom::attach(checked(memory_, workers, rows), workers, rows)),
          out_(rows, 0) {}

    void assign(uint32_t w, uint32_t first, uint32_t last) {
        if (first >= last || last > out_.size()) throw nb::index_error("no such rows");
        room_.assign(checked(w), {first, last - first});
    }

    void post(uint32_t first, uint32_t last, uint32_t command) {
        if (first >= last || last > room_.workers()) throw nb::index_error("no such workers");
        check_command(command);
        room_.post(first, last, command);
    }
    void post_again(uint32_t w, uint32_t command) {
        check_command(command);
        room_.post_again(checked(w), command);
    }

    uint64_t turns() const { return room_.turns(); }

    bool wait_done(double timeout, double pause, double yield) {
        const WithoutGil others_run;
        return room_.wait_done(patience(pause, yield), now() + nanoseconds(timeout));
    }

    bool is_finished(uint32_t w) const { return room_.is_finished(checked(w)); }
    uint32_t status(uint32_t w) const { return room_.status(checked(w)); }

    bool is_silent(uint32_t silence) const { return room_.is_silent(silence); }
    bool is_garbled(uint32_t w) const { return room_.is_garbled(checked(w)); }

    void send(Rows rows, uint32_t kind) {
        if (kind >= ticket_kinds) throw nb::value_error("no such kind of ticket");
        mark_out(rows, kind);  // all or none
        for (size_t i = 0; i < rows.size(); ++i) {
            const auto row = static_cast<uint32_t>(rows(i));
            room_.send(worker_of(row), ticket_kinds * row + kind);
        }
        room_.wake();
    }

    uint32_t num_ready() const { return room_.num_ready(); }

    bool wait_ready(uint32_t count, double timeout, double pause, double yield) {
        const WithoutGil others_run;
        const Nanoseconds deadline = now() + nanoseconds(timeout);
        return room_.wait_ready(count, patience(pause, yield), deadline);
    }

    size_t collect(Rows rows, Statuses statuses) {
        if (rows.size() != statuses.size()) throw nb::value_error("expected a status a row");
        size_t count = 0;
        Result result{};
        uint32_t worker = 0;
        while (count < rows.size() && room_.collect(result, worker)) {
            if (out_[result.row] == 0 || result.status > most_status) {
                room_.note_garbage(worker);
                continue;
            }
            rows(count) = result.row;
            out_[result.row] = 0;
            statuses(count) = static_cast<uint8_t>(result.status);
            ++count;
        }
        return count;
    }

    std::optional<uint32_t> kind_out(uint32_t row) const {
        if (row >= out_.size()) throw nb::index_error("no such row");
        if (out_[row] == 0) return std::nullopt;
        return out_[row] - 1;
    }
    std::tuple<uint64_t, uint64_t> received(uint32_t w) const { return room_.received(checked(w)); }

    void clear(uint32_t w) {
        room_.clear(checked(w));
        const auto [first, count] = room_.assigned(w);
        std::fill_n(out_.begin() + first, count, uint8_t{0});
    }

    std::optional<uint32_t> take(uint32_t w, double timeout, double pause, double yield) {
        checked(w);
        const WithoutGil others_run;
        uint32_t command = 0, ticket = 0;
        const Nanoseconds deadline = now() + nanoseconds(timeout);
        if (!room_.take(w, patience(pause, yield), deadline, command, ticket)) return std::nullopt;
        if (command != 0) return command;
        if (!room_.assigned(w).contains(ticket / ticket_kinds)) throw GarbledError();
        return first_ticket + ticket;
    }

    void finish(uint32_t w, uint32_t status) {
        if (status > TurnWord::most_said) throw nb::value_error("no such status");
        room_.finish(checked(w), status);
    }
    void publish(uint32_t w, uint32_t row, uint32_t status) {
        if (!room_.assigned(checked(w)).contains(row)) throw nb::index_error("no such row");
        if (status > most_status) throw nb::value_error("no such status");
        room_.publish(w, row, status);
    }

  private:
    static constexpr uint32_t most_status = 254;  // of a single row: 255 stands for none

    void mark_out(const Rows& rows, uint32_t kind) {
        size_t marked = 0;
        try {
            for (; marked < rows.size(); ++marked) {
                worker_of(rows(marked));
                uint8_t& out = out_[static_cast<size_t>(rows(marked))];
                if (out != 0) throw nb::value_error("a row was sent that is still out");
                out = static_cast<uint8_t>(1 + kind);
            }
        } catch (...) {
            while (marked-- > 0) out_[static_cast<size_t>(rows(marked))] = 0;
            throw;
        }
    }
    static void* checked(const Memory& memory, uint32_t workers, uint32_t rows) {
        if (memory.size() < Mailroom::bytes(workers, rows)) {
            throw nb::value_error("memory too small");
        }
        if (reinterpret_cast<uintptr_t>(memory.data()) % alignof(Mailbox) != 0) {
            throw nb::value_error("memory must be aligned to a cache line");
        }
        return memory.data();
    }
    static void check_command(uint32_t command) {
        if (command == 0 || command >= first_ticket) throw nb::value_error("no such command");
    }
    uint32_t checked(uint32_t w) const {
        if (w >= room_.workers()) throw nb::index_error("no such worker");
        return w;
    }
    uint32_t worker_of(int64_t row) const {
        for (uint32_t w = 0; w < room_.workers(); ++w) {
            const auto [first, count] = room_.assigned(w);
            if (row >= first && row < int64_t{first} + count) return w;
        }
        throw nb::index_error("no worker has such a row");
    }

    Memory memory_;
    Mailroom room_;
    // For each row 1 + the kind of its ticket, until its result is collected.
    std::vector<uint8_t> out_;
};

}  // namespace envfleet
