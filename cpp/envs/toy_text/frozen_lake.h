// FrozenLake: cross the ice to the goal without falling into a hole; the ice is slippery.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/toy_text/categorical.h"

namespace envfleet {

struct FrozenLake {
    struct Params {
        std::string map = "S";  // cells row by row: Start, Frozen, Hole, Goal
        int64_t columns = 1;
        bool is_slippery = true;
        double success_rate = 1.0 / 3.0;
        std::array<double, 3> reward_schedule = {1, 0, 0};  // for the goal, a hole, anything else

        std::vector<double> starts;           // cumulated probability of each cell to be the start
        std::array<double, 3> probabilities;  // to slip to one side, not at all, to the other
        std::array<double, 3> cumulated;

        void prepare() {
            if (columns < 1 || map.empty() || map.size() % static_cast<size_t>(columns) != 0) {
                throw std::invalid_argument("the rows of the map must have the same length.");
            }
            const auto count = static_cast<double>(std::count(map.begin(), map.end(), 'S'));
            if (count == 0) throw std::invalid_argument("the map must have a start 'S'.");
            double sum = 0.0;
            for (const char cell : map) starts.push_back(sum += cell == 'S' ? 1.0 / count : 0.0);
            const double fail_rate = (1.0 - success_rate) / 2.0;
            probabilities = {fail_rate, success_rate, fail_rate};
            cumulated = {fail_rate, fail_rate + success_rate, fail_rate + success_rate + fail_rate};
        }
    };
    struct State {
        int64_t s;  // the cell
        std::optional<int64_t> lastaction;
        double probability;  // of what happened last
    };
    using Action = int64_t;  // left, down, right, up
    static constexpr int64_t num_actions = 4;

    static void reset(State& s, Rng& rng, const Params& p) {
        s = {static_cast<int64_t>(categorical_sample(p.starts, rng)), std::nullopt, 1.0};
    }

    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        s.lastaction = action;
        const double draw = rng.random();
        const char here = p.map.at(static_cast<size_t>(s.s));
        if (here == 'G' || here == 'H') {
            s.probability = 1.0;
            return {0.0, true};
        }
        size_t side = 1;
        if (p.is_slippery) {
            side = draw < p.cumulated[0]   ? 0
                   : draw < p.cumulated[1] ? 1
                   : draw < p.cumulated[2] ? 2
                                           : 0;
        }
        s.probability = p.is_slippery ? p.probabilities[side] : 1.0;
        s.s = neighbour(s.s, (action + 3 + static_cast<int64_t>(side)) % 4, p);
        const char there = p.map.at(static_cast<size_t>(s.s));
        const size_t prize = there == 'G' ? 0 : there == 'H' ? 1 : 2;
        return {p.reward_schedule[prize], prize != 2};
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
    static auto constants() {
        return std::tuple(field("map", &Params::map), field("ncol", &Params::columns),
                          field("is_slippery", &Params::is_slippery),
                          field("success_rate", &Params::success_rate),
                          field("reward_schedule", &Params::reward_schedule));
    }
    static auto variables() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction));
    }
    static auto saved() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction),
                          field("probability", &State::probability));
    }
    static void check(const State& s, const Params& p) {
        check_index("s", s.s, static_cast<int64_t>(p.map.size()));
        check_index("lastaction", s.lastaction, num_actions);
        check_finite("prob", s.probability);
    }

  private:
    static int64_t neighbour(int64_t cell, int64_t direction, const Params& p) {
        const int64_t rows = static_cast<int64_t>(p.map.size()) / p.columns;
        int64_t row = cell / p.columns, column = cell % p.columns;
        switch (direction) {
            case 0:
                column = std::max<int64_t>(column - 1, 0);
                break;
            case 1:
                row = std::min(row + 1, rows - 1);
                break;
            case 2:
                column = std::min(column + 1, p.columns - 1);
                break;
            default:
                row = std::max<int64_t>(row - 1, 0);
                break;
        }
        return row * p.columns + column;
    }
};

}  // namespace envfleet
