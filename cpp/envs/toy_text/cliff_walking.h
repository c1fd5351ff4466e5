// CliffWalking: along the edge of a cliff from the left to the right corner. Sutton and Barto,
// example 6.6.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"

namespace envfleet {

struct CliffWalking {
    static constexpr int64_t rows = 4, columns = 12;
    static constexpr int64_t start = (rows - 1) * columns, goal = rows * columns - 1;

    struct Params {
        bool is_slippery = false;
    };
    struct State {
        int64_t s;  // the cell
        std::optional<int64_t> lastaction;
        double probability;  // of what happened last
    };
    using Action = int64_t;  // up, right, down, left
    static constexpr int64_t num_actions = 4;

    static void reset(State& s, Rng& rng, const Params&) {
        rng.random();  // Gymnasium draws where to start, though there is only one place
        s = {start, std::nullopt, 1.0};
    }

    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        constexpr double third = 1.0 / 3;
        const double draw = rng.random();
        int64_t direction = action;
        if (p.is_slippery) {
            const int64_t side = draw < third ? 0 : draw < third + third ? 1 : 2;
            direction = (action + 3 + side) % 4;
        }
        s.lastaction = action;
        s.probability = p.is_slippery ? third : 1.0;
        s.s = neighbour(s.s, direction);
        if (s.s > start && s.s < goal) {
            s.s = start;
            return {-100.0};
        }
        return {-1.0, s.s == goal};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {sizeof(int64_t)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        *out.leaf<int64_t>(0) = s.s;
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{.name = "prob", .dtype = "float64", .dtype_at_reset = "int64"}};
    }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.probability;
    }

    static auto parameters() { return std::tuple<>(); }
    static auto constants() { return std::tuple(field("is_slippery", &Params::is_slippery)); }
    static auto variables() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction));
    }
    static auto saved() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction),
                          field("probability", &State::probability));
    }
    static void check(const State& s, const Params&) {
        check_index("s", s.s, rows * columns);
        check_index("lastaction", s.lastaction, num_actions);
        check_finite("prob", s.probability);
    }

  private:
    static int64_t neighbour(int64_t cell, int64_t direction) {
        constexpr std::array<int64_t, 4> down = {-1, 0, 1, 0}, right = {0, 1, 0, -1};
        const auto d = static_cast<size_t>(direction);
        const int64_t row = std::clamp<int64_t>(cell / columns + down[d], 0, rows - 1);
        const int64_t column = std::clamp<int64_t>(cell % columns + right[d], 0, columns - 1);
        return row * columns + column;
    }
};

}  // namespace envfleet
