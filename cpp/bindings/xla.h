// Turns of a fleet that compiled functions of JAX make: calls of XLA's foreign function interface.
//
// A call has neither the GIL nor a fleet, only arrays. The first of them, the handle, says which
// fleet is meant and how many turns such calls have made of it. Each call gives the handle for the
// next one. So they come in order, whatever XLA makes of the program around them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/gil.h"
#include "bindings/pool.h"
#include "bindings/xla_call.h"

namespace envfleet {

namespace nb = nanobind;

// One of the pool's arrays, beside one of XLA's for the same numbers.
class XlaColumn {
  public:
    explicit XlaColumn(const Column& column)
        : type_(xla_type_of(column)),
          data_(column.data()),
          row_bytes_(column.row_bytes()),
          bytes_(column.rows() * row_bytes_) {}

    // Whether the array is for these numbers, as they are or in half the precision.
    bool fits(const XlaArray& array) const {
        const size_t count = bytes_ / xla_size(type_);
        return array.count == count && (array.type == type_ || array.type == xla_half(type_));
    }
    bool is_same(const XlaArray& array) const { return array.type == type_; }

    // From here to the array, and the other way round.
    Twin to(const XlaArray& array) const {
        return {data_,      array.data,
                row_bytes_, xla_conversion(type_, array.type),
                numbers(),  numbers() * xla_size(array.type)};
    }
    Twin from(const XlaArray& array) const {
        return {array.data,
                data_,
                numbers() * xla_size(array.type),
                xla_conversion(array.type, type_),
                numbers(),
                row_bytes_};
    }

    void write(const XlaArray& array) const { to(array).copy_rows(0, bytes_ / row_bytes_); }

    // The rows for which holds(row), zeros elsewhere.
    template <class Holds>
    void write_where(const XlaArray& array, const Holds& holds) const {
        std::memset(array.data, 0, array.count * xla_size(array.type));
        const Twin twin = to(array);
        for (size_t row = 0; row < bytes_ / row_bytes_; ++row) {
            if (holds(row)) twin.copy_rows(row, row + 1);
        }
    }

  private:
    size_t numbers() const { return row_bytes_ / xla_size(type_); }

    XLA_FFI_DataType type_;
    std::byte* data_;
    size_t row_bytes_, bytes_;
};

// A fleet as compiled functions of JAX see it. The pool lives as long as this.
class XlaFleet {
  public:
    // `pool`: a PyPool, of which this keeps hold.
    explicit XlaFleet(nb::object pool)
        : keep_(std::move(pool)),
          pool_(nb::cast<PyPool&>(keep_)),
          actions_(pool_.arrays().actions),
          seat_(Seats::all().add(*this)) {
        const PoolArrays& arrays = pool_.arrays();
        for (const Column& column : arrays.observations) observations_.emplace_back(column);
        for (const Column& column : arrays.final_observations) finals_.emplace_back(column);
        flow_ = {XlaColumn(arrays.rewards), XlaColumn(arrays.terminated),
                 XlaColumn(arrays.truncated)};
        if (!pool_.resets_in_same_step()) finals_.clear();
    }
    ~XlaFleet() { leave_seat({}); }
    XlaFleet(const XlaFleet&) = delete;
    XlaFleet& operator=(const XlaFleet&) = delete;

    // The handle for the next call: the fleet's number, and how many turns there were.
    std::pair<uint32_t, uint32_t> handle() const { return {seat_->number, turns_.load()}; }

    // No call makes a turn any more. False if one is under way that does not end in so many
    // seconds.
    bool close(double seconds) { return leave_seat(seconds); }

    // What XLA calls; they answer with an error or nothing.
    static XLA_FFI_Error* step(XLA_FFI_CallFrame* frame) noexcept {
        return XlaCall::answer(frame, [](XlaCall& call) {
            return Seats::all().turn(call, [&](XlaFleet& fleet) { return fleet.make_step(call); });
        });
    }
    static XLA_FFI_Error* reset(XLA_FFI_CallFrame* frame) noexcept {
        return XlaCall::answer(frame, [](XlaCall& call) {
            return Seats::all().turn(call, [&](XlaFleet& fleet) { return fleet.make_reset(call); });
        });
    }

  private:
    using Problem = std::string;  // empty if there is none

    // Where a fleet can be found by those that have its number only.
    struct Seat {
        const uint32_t number;
        std::timed_mutex turn;      // held while a call makes one
        XlaFleet* fleet = nullptr;  // none once it is closed
    };

    class Seats {
      public:
        static Seats& all() {
            static auto* const seats = new Seats;  // calls may come until the process ends
            return *seats;
        }

        std::shared_ptr<Seat> add(XlaFleet& fleet) {
            const std::lock_guard lock(mutex_);
            auto seat = std::make_shared<Seat>(++last_);
            seat->fleet = &fleet;
            seats_[seat->number] = seat;
            return seat;
        }

        void remove(uint32_t number) {
            const std::lock_guard lock(mutex_);
            seats_.erase(number);
        }

        // Has the fleet of a call's handle make a turn, and gives the next handle.
        template <class Make>
        Problem turn(XlaCall& call, const Make& make) {
            if (call.arguments().empty() || !call.arguments()[0].is_handle() ||
                call.results().empty() || !call.results()[0].is_handle()) {
                return "expected a handle, uint32[2], as envs.xla() gives it";
            }
            uint32_t given[2];
            std::memcpy(given, call.arguments()[0].data, sizeof given);
            const std::shared_ptr<Seat> seat = find(given[0]);
            if (seat == nullptr) return closed;
            const std::lock_guard lock(seat->turn);
            if (seat->fleet == nullptr) return closed;
            XlaFleet& fleet = *seat->fleet;
            if (given[1] != fleet.turns_) {
                return "this handle is of turn " + std::to_string(given[1]) +
                       ", and the fleet is at turn " + std::to_string(fleet.turns_.load()) +
                       ": give each call the handle that the call before returned. envs.xla() "
                       "gives the latest";
            }
            Problem problem = make(fleet);
            if (!problem.empty()) return problem;
            const uint32_t next[2] = {given[0], ++fleet.turns_};
            std::memcpy(call.results()[0].data, next, sizeof next);
            return {};
        }

      private:
        static constexpr const char* closed = "the fleet of this handle was closed";

        std::shared_ptr<Seat> find(uint32_t number) {
            const std::lock_guard lock(mutex_);
            const auto found = seats_.find(number);
            return found == seats_.end() ? nullptr : found->second;
        }

        std::mutex mutex_;
        uint32_t last_ = 0;
        std::unordered_map<uint32_t, std::shared_ptr<Seat>> seats_;
    };

    // A call that is under way may need the GIL to come to its end.
    bool leave_seat(std::optional<double> seconds) {
        const WithoutGil others_run;
        std::unique_lock lock(seat_->turn, std::defer_lock);
        if (!seconds) {
            lock.lock();
        } else if (!lock.try_lock_for(std::chrono::duration<double>(*seconds))) {
            return false;
        }
        seat_->fleet = nullptr;
        Seats::all().remove(seat_->number);
        return true;
    }

    // handle, actions -> handle, observations, rewards, terminated, truncated, and where episodes
    // begin in the step that ends others, their last observations.
    Problem make_step(XlaCall& call) {
        std::vector<const XlaColumn*> outputs = pointers(observations_);
        for (const XlaColumn& output : flow_) outputs.push_back(&output);
        const size_t before_finals = outputs.size() + 1;
        for (const XlaColumn& output : finals_) outputs.push_back(&output);
        if (call.arguments().size() != 2 || !fit(call, outputs)) return other_arrays;
        const auto& results = call.results();
        std::vector<Twin> twins;
        for (size_t i = 1; i < before_finals; ++i) twins.push_back(outputs[i - 1]->to(results[i]));
        const XlaArray& actions = call.arguments()[1];
        if (!actions_.fits(actions)) return other_arrays;
        const bool is_same = actions_.is_same(actions);
        const Twin elsewhere = actions_.from(actions);
        Problem problem = pool_.without_python([&](AnyPool& pool, const PlainArguments& plain) {
            const Problem wrong = plain.problem_with(actions.data, is_same);
            if (!wrong.empty()) return wrong;
            is_same ? pool.step(actions.data, twins)
                    : pool.step(pool_.arrays().actions.data(), twins, &elsewhere);
            return Problem();
        });
        if (!problem.empty()) return problem;
        const auto* turns = reinterpret_cast<const Turn*>(pool_.arrays().turns.data());
        for (size_t i = before_finals; i < results.size(); ++i) {
            outputs[i - 1]->write_where(
                results[i], [=](size_t row) { return turns[row] == Turn::ended_and_reset; });
        }
        return {};
    }

    // handle, mask -> handle, observations
    Problem make_reset(XlaCall& call) {
        const std::vector<const XlaColumn*> outputs = pointers(observations_);
        if (call.arguments().size() != 2 || !fit(call, outputs)) return other_arrays;
        const XlaArray& mask = call.arguments()[1];
        const size_t rows = pool_.arrays().rewards.rows();
        if (mask.type != XLA_FFI_DataType_PRED || mask.count != rows) return other_arrays;
        Problem problem = pool_.without_python([&](AnyPool& pool, const PlainArguments&) {
            pool.reset({reinterpret_cast<const uint8_t*>(mask.data), rows}, {});
            return Problem();
        });
        if (!problem.empty()) return problem;
        for (size_t i = 1; i < call.results().size(); ++i) outputs[i - 1]->write(call.results()[i]);
        return {};
    }

    static constexpr const char* other_arrays =
        "the arrays are those of another fleet: give the functions of envs.xla() a handle of the "
        "same envs";

    static std::vector<const XlaColumn*> pointers(const std::vector<XlaColumn>& outputs) {
        std::vector<const XlaColumn*> all;
        for (const XlaColumn& output : outputs) all.push_back(&output);
        return all;
    }
    static bool fit(const XlaCall& call, const std::vector<const XlaColumn*>& outputs) {
        if (call.results().size() != outputs.size() + 1) return false;
        for (size_t i = 0; i < outputs.size(); ++i) {
            if (!outputs[i]->fits(call.results()[i + 1])) return false;
        }
        return true;
    }

    nb::object keep_;
    PyPool& pool_;
    XlaColumn actions_;
    std::vector<XlaColumn> observations_, finals_, flow_;
    std::atomic<uint32_t> turns_{0};
    std::shared_ptr<Seat> seat_;  // the last: from then on calls may come
};

}  // namespace envfleet
