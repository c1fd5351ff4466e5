// Tickets for single rows: rows are sent to work, and received in the order in which they are done.
//
// The caller sends rows and goes on; the helpers of its team take them in the order they were sent.
// While the caller waits for results it works too. Rows that are done sooner than a helper could be
// awake are left to the caller.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "engine/waiting.h"

namespace envfleet {

class Tickets final : public TeamWork {
  public:
    // `work` does what is to be done with a row; it must not throw. `adaptive`: helpers are asked
    // where they pay off, otherwise always.
    Tickets(Team& team, size_t rows, bool adaptive, std::function<void(size_t)> work)
        : team_(team),
          work_(std::move(work)),
          adaptive_(adaptive),
          waiting_(rows),
          done_(rows),
          shares_(team.size()) {
        team_.take_on(*this);
    }
    ~Tickets() { team_.end(); }
    Tickets(const Tickets&) = delete;
    Tickets& operator=(const Tickets&) = delete;

    // How many rows were sent and not received.
    size_t out() const { return sent_.load(std::memory_order_relaxed) - received_; }

    // Throws in a forked copy of the process whose helpers had rows to work on.
    void check_here() const {
        if (!are_elsewhere()) return;
        throw std::runtime_error(
            "the threads of this fleet stayed in the process that this one was forked from. Make a "
            "new fleet after the fork.");
    }

    // Sets rows to work, none of which may be out.
    void send(std::span<const int64_t> rows) {
        check_here();
        const uint64_t sent = enqueue(rows);
        if (team_.size() == 1 || (adaptive_ && !worth_sharing(sent))) return;
        if (!team_.has_helpers()) return;  // the caller does it all
        has_offered_ = true;
        offered_.store(sent, std::memory_order_seq_cst);
        team_.call();
    }

    // Writes down the first that are done. False, and nothing happens, if the deadline passed or a
    // signal arrived while there was nothing left to do but wait.
    bool receive(std::span<int64_t> rows, Nanoseconds deadline) {
        check_here();
        const uint64_t wanted = received_ + rows.size();
        auto ready = [&] { return finished_.load(std::memory_order_seq_cst) >= wanted; };
        for (;;) {
            const uint64_t finished = finished_.load(std::memory_order_seq_cst);
            if (finished >= wanted) break;
            if (work_on(shares_[0], sent_, wanted - finished)) continue;
            if (!wait(ready, wanted, deadline)) return false;
        }
        const std::lock_guard lock(rings_mutex_);
        for (int64_t& row : rows) row = done_[received_++ % done_.size()];
        return true;
    }

    // Whether helpers have a part in the next so many results, so that to receive them may mean to
    // wait. What they have begun is read last: a row that they begin meanwhile counts as theirs.
    bool may_wait_for(size_t count) const {
        const uint64_t finished = finished_.load(std::memory_order_seq_cst);
        if (finished >= received_ + count) return false;
        const uint64_t begun = begun_.load(std::memory_order_seq_cst);
        return begun > finished || begun < offered_.load(std::memory_order_relaxed);
    }

    // Forgets all that was sent: what nobody has begun is not done, the rest is waited for. False
    // if the deadline passed or a signal arrived first; then the rest is still out.
    bool recall(Nanoseconds deadline) {
        if (!are_elsewhere()) {
            const uint64_t begun = leave_the_rest();
            auto idle = [&] { return finished_.load(std::memory_order_seq_cst) >= begun; };
            if (!idle() && !wait(idle, begun, deadline)) return false;
        }
        received_ = sent_.load(std::memory_order_relaxed);
        return true;
    }

    // The rows that somebody has begun and not finished.
    std::vector<int64_t> under_way() {
        check_here();
        const std::lock_guard lock(rings_mutex_);
        std::vector<int64_t> rows;
        for (const Share& share : shares_) {
            rows.insert(rows.end(), share.rows.begin(), share.rows.begin() + share.count);
        }
        std::sort(rows.begin(), rows.end());
        return rows;
    }

    bool calls(size_t) const override {
        return begun_.load(std::memory_order_seq_cst) < offered_.load(std::memory_order_seq_cst);
    }
    void help(size_t helper) override {
        while (!team_.is_ending() && work_on(shares_[helper], offered_, no_end)) {
        }
    }

  private:
    // Less than this is done before a helper is awake.
    static constexpr double worth_waking = 15'000;
    // For so long a thread may keep to itself what is done and what is not.
    static constexpr double brief = 5'000;
    static constexpr uint64_t largest_share = 64;
    static constexpr uint64_t no_end = std::numeric_limits<uint64_t>::max();

    // The rows that somebody has taken up and not finished.
    struct alignas(64) Share {
        std::array<int64_t, largest_share> rows;
        uint64_t count = 0;
    };

    bool are_elsewhere() const { return has_offered_ && team_.is_elsewhere(); }

    bool worth_sharing(uint64_t sent) const {
        const auto left = static_cast<double>(sent - begun_.load(std::memory_order_relaxed));
        return left * usual_.load(std::memory_order_relaxed) >= worth_waking;
    }

    // Takes up rows that were sent before the end, in this order, and does them; false if there
    // are none.
    bool work_on(Share& share, const std::atomic<uint64_t>& end, uint64_t most) {
        const std::span<const int64_t> rows = take_up(share, end, most);
        if (rows.empty()) return false;
        const Nanoseconds start = now();
        for (const int64_t row : rows) work_(static_cast<size_t>(row));
        note_time(static_cast<double>(now() - start) / static_cast<double>(rows.size()));
        publish(share);
        return true;
    }

    uint64_t enqueue(std::span<const int64_t> rows) {
        const std::lock_guard lock(rings_mutex_);
        uint64_t sent = sent_.load(std::memory_order_relaxed);
        for (const int64_t row : rows) waiting_[sent++ % waiting_.size()] = row;
        sent_.store(sent, std::memory_order_seq_cst);
        return sent;
    }

    // The end is read under the lock: what was recalled must not be begun.
    std::span<const int64_t> take_up(Share& share, const std::atomic<uint64_t>& end,
                                     uint64_t most) {
        const std::lock_guard lock(rings_mutex_);
        const uint64_t first = begun_.load(std::memory_order_relaxed);
        const uint64_t limit = end.load(std::memory_order_relaxed);
        if (first >= limit) return {};
        const uint64_t count = std::min({most, fair_share(first, limit), largest_share});
        for (uint64_t i = 0; i < count; ++i) {
            share.rows[i] = waiting_[(first + i) % waiting_.size()];
        }
        share.count = count;
        begun_.store(first + count, std::memory_order_seq_cst);
        return {share.rows.data(), count};
    }

    // What is not begun counts as never sent; returns how many were begun.
    uint64_t leave_the_rest() {
        const std::lock_guard lock(rings_mutex_);
        const uint64_t begun = begun_.load(std::memory_order_relaxed);
        const uint64_t offered = offered_.load(std::memory_order_relaxed);
        sent_.store(begun, std::memory_order_seq_cst);
        offered_.store(std::min(offered, begun), std::memory_order_seq_cst);
        return begun;
    }

    // Whoever has no helpers at work need not leave anything to them.
    uint64_t fair_share(uint64_t first, uint64_t limit) const {
        const uint64_t left = limit - first;
        if (offered_.load(std::memory_order_relaxed) <= first) return left;
        const double usual = usual_.load(std::memory_order_relaxed);
        const auto in_time = usual > 0 ? static_cast<uint64_t>(brief / usual) : 0;
        return std::max<uint64_t>(1, std::min<uint64_t>(in_time, left / (2 * team_.size())));
    }

    // Of two who do so at once one is forgotten: it is an average.
    void note_time(double took) {
        const double usual = usual_.load(std::memory_order_relaxed);
        const double seen = usual == 0 ? took : std::min(took, 4 * usual);
        usual_.store(usual + (seen - usual) / (usual == 0 ? 1 : 8), std::memory_order_relaxed);
    }

    void publish(Share& share) {
        uint64_t finished;
        {
            const std::lock_guard lock(rings_mutex_);
            finished = finished_.load(std::memory_order_relaxed);
            for (uint64_t i = 0; i < share.count; ++i) {
                done_[finished++ % done_.size()] = share.rows[i];
            }
            share.count = 0;
            finished_.store(finished, std::memory_order_seq_cst);
        }
        if (finished >= wanted_.load(std::memory_order_seq_cst)) results_.ring();
    }

    template <class Ready>
    bool wait(const Ready& ready, uint64_t wanted, Nanoseconds deadline) {
        wanted_.store(wanted, std::memory_order_seq_cst);
        team_.take_seat();
        return team_.wait(results_, ready, deadline);
    }

    Team& team_;
    const std::function<void(size_t)> work_;
    const bool adaptive_;
    bool has_offered_ = false;  // rows to helpers, ever
    // Rings: of the rows sent and not begun, and of those done and not received. No row is in both,
    // nor in one twice, so none overflows. The numbers below say where they begin and end, and
    // count on for ever.
    std::vector<int64_t> waiting_;
    std::vector<int64_t> done_;
    std::vector<Share> shares_;  // the caller's is the first
    std::mutex rings_mutex_;
    alignas(64) std::atomic<uint64_t> sent_{0};
    std::atomic<uint64_t> offered_{0};  // up to here helpers may take them
    uint64_t received_ = 0;
    alignas(64) std::atomic<uint64_t> begun_{0};
    alignas(64) std::atomic<uint64_t> finished_{0};
    std::atomic<uint64_t> wanted_{0};  // so many done are worth waking the caller for
    std::atomic<double> usual_{0};     // nanoseconds a row
    SharedBell results_;
};

}  // namespace envfleet
