// What lies in the memory that a caller shares with its workers, and what it means. How it is used
// is written in mailroom.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "engine/clock.h"
#include "engine/cores.h"
#include "engine/waiting.h"

namespace envfleet {

// A turn and what is said of it, its command or its status, in one number: both are there or none.
class TurnWord {
  public:
    TurnWord() = default;
    explicit TurnWord(uint64_t bits) : bits_(bits) {}
    TurnWord(uint64_t turn, uint32_t said) : bits_(turn << said_bits | (said & most_said)) {}

    static constexpr uint32_t most_said = 0xffff;

    uint64_t bits() const { return bits_; }
    uint32_t said() const { return static_cast<uint32_t>(bits_ & most_said); }
    bool is_same_turn(TurnWord other) const { return (bits_ ^ other.bits_) >> said_bits == 0; }
    TurnWord with(uint32_t said) const { return {bits_ >> said_bits, said}; }
    TurnWord next(uint32_t said) const { return {(bits_ >> said_bits) + 1, said}; }

  private:
    static constexpr int said_bits = 16;
    uint64_t bits_ = 0;
};

struct Mailbox {
    // The caller's line.
    alignas(64) std::atomic<uint64_t> posted{0};  // a TurnWord with the command
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> collected{0};
    uint32_t first_row{0};
    uint32_t rows{0};
    // The worker's line.
    alignas(64) std::atomic<uint64_t> finished{0};  // a TurnWord with the status
    std::atomic<uint64_t> taken{0};
    std::atomic<uint64_t> published{0};
    std::atomic<uint32_t> asleep{0};
    Seat seat;
};

// One environment's result, as its worker leaves it for the caller.
struct Result {
    uint64_t number;  // as counted by `published`
    Nanoseconds when;
    uint32_t row;
    uint32_t status;
};

// A place in the rings of a worker's mailbox, one per environment: none has more than one ticket
// out.
struct Slot {
    Result result;
    uint64_t ticket;  // below the lower half of its number, as counted by `sent`
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

    bool contains(uint32_t row) const { return row - first < count; }
};

// The memory holds what nobody who keeps to the rules can have written.
struct GarbledError : std::runtime_error {
    GarbledError() : std::runtime_error("garbage was written into the shared block") {}
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics in shared memory need no locks");

}  // namespace envfleet
