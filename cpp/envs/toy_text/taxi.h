// Taxi: pick a passenger up and set them down where they want to go. Dietterich (2000).
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
#include "envs/toy_text/categorical.h"

namespace envfleet {

struct Taxi {
    static constexpr int64_t last = 4;  // row and column
    static constexpr int64_t num_scenes = 500;
    static constexpr int64_t in_the_taxi = 4;  // where the passenger may be, besides four stands

    struct Params {
        bool is_rainy = false;          // the taxi may drift to a side
        bool fickle_passenger = false;  // who may change their mind once
        double rainy_probability = 0.8;
        double fickle_probability = 0.3;
    };
    struct State {
        int64_t s;
        std::optional<int64_t> lastaction;
        bool fickle_step;
        double probability;  // of what happened last
    };
    using Action = int64_t;  // south, north, east, west, pick up, set down
    static constexpr int64_t num_actions = 6;

    static void reset(State& s, Rng& rng, const Params& p) {
        s.s = static_cast<int64_t>(categorical_sample(starts(), rng));
        s.lastaction.reset();
        s.fickle_step = p.fickle_passenger && rng.random() < p.fickle_probability;
        s.probability = 1.0;
    }

    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        const double draw = rng.random();
        const Scene before = decode(s.s);
        Scene after = before;
        Outcome outcome{-1.0};
        s.probability = 1.0;
        if (action == 4) {
            outcome = pick_up(after);
        } else if (action == 5) {
            outcome = set_down(after);
        } else if (p.is_rainy) {
            s.probability = drift(after, action, draw, p.rainy_probability);
        } else {
            after = moved(before, action);
        }
        const bool has_moved = after.row != before.row || after.column != before.column;
        if (p.fickle_passenger && s.fickle_step && before.passenger == in_the_taxi && has_moved) {
            s.fickle_step = false;
            const int64_t other = rng.choice(3);  // of the destinations but the present one
            after.destination = other + (other >= before.destination);
        }
        s.s = encode(after);
        s.lastaction = action;
        return outcome;
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {sizeof(int64_t)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        *out.leaf<int64_t>(0) = s.s;
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{.name = "prob", .dtype = "float64"},
                {.name = "action_mask", .dtype = "int8", .shape = {6}}};
    }
    // The mask tells which actions would change anything.
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.probability;
        const Scene scene = decode(s.s);
        int8_t* mask = out.leaf<int8_t>(1);
        for (int64_t action = 0; action < 4; ++action) mask[action] = is_free(scene, action);
        const bool rides = scene.passenger == in_the_taxi;
        mask[4] = !rides && stand_at(scene) == scene.passenger;
        mask[5] = rides && stand_at(scene) >= 0;
    }

    static auto parameters() {
        return std::tuple(field("fickle_passenger", &Params::fickle_passenger),
                          field("fickle_probability", &Params::fickle_probability));
    }
    static auto constants() {
        return std::tuple(field("is_rainy", &Params::is_rainy),
                          field("rainy_probability", &Params::rainy_probability));
    }
    static auto variables() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction),
                          field("fickle_step", &State::fickle_step));
    }
    static auto saved() {
        return std::tuple(field("s", &State::s), field("lastaction", &State::lastaction),
                          field("fickle_step", &State::fickle_step),
                          field("probability", &State::probability));
    }
    static void check(const State& s, const Params&) {
        check_index("s", s.s, num_scenes);
        check_index("lastaction", s.lastaction, num_actions);
        check_finite("prob", s.probability);
    }

  private:
    struct Scene {
        int64_t row, column, passenger, destination;
    };

    static int64_t encode(const Scene& scene) {
        return ((scene.row * 5 + scene.column) * 5 + scene.passenger) * 4 + scene.destination;
    }
    static Scene decode(int64_t s) { return {s / 100, s / 20 % 5, s / 4 % 5, s % 4}; }

    static constexpr std::array<std::array<int64_t, 2>, 4> stands = {
        {{0, 0}, {0, 4}, {4, 0}, {4, 3}}};

    // The number of the stand the taxi is at, -1 if none.
    static int64_t stand_at(const Scene& scene) {
        for (size_t i = 0; i < stands.size(); ++i) {
            if (scene.row == stands[i][0] && scene.column == stands[i][1]) {
                return static_cast<int64_t>(i);
            }
        }
        return -1;
    }

    // Walls stand east of the cells marked |.
    static bool has_wall_east(int64_t row, int64_t column) {
        constexpr const char* walls[] = {" |  |", " |  |", "    |", "| | |", "| | |"};
        return walls[row][column] == '|';
    }

    static bool is_free(const Scene& scene, int64_t action) {
        switch (action) {
            case 0:
                return scene.row < last;
            case 1:
                return scene.row > 0;
            case 2:
                return !has_wall_east(scene.row, scene.column);
            default:
                return scene.column > 0 && !has_wall_east(scene.row, scene.column - 1);
        }
    }

    static Scene moved(Scene scene, int64_t action) {
        if (!is_free(scene, action)) return scene;
        scene.row += action == 0 ? 1 : action == 1 ? -1 : 0;
        scene.column += action == 2 ? 1 : action == 3 ? -1 : 0;
        return scene;
    }

    // In the rain a taxi that can go ahead may go left or right of it instead.
    static double drift(Scene& scene, int64_t action, double draw, double ahead) {
        const double aside = (1.0 - ahead) / 2.0;
        const size_t way = draw < ahead                   ? 0
                           : draw < ahead + aside         ? 1
                           : draw < ahead + aside + aside ? 2
                                                          : 0;
        constexpr std::array<int64_t, 4> left = {2, 3, 1, 0}, right = {3, 2, 0, 1};
        if (is_free(scene, action)) {
            const auto a = static_cast<size_t>(action);
            scene = moved(scene, way == 0 ? action : way == 1 ? left[a] : right[a]);
        }
        return way == 0 ? ahead : aside;
    }

    static Outcome pick_up(Scene& scene) {
        if (scene.passenger == in_the_taxi || stand_at(scene) != scene.passenger) return {-10.0};
        scene.passenger = in_the_taxi;
        return {-1.0};
    }

    static Outcome set_down(Scene& scene) {
        const int64_t stand = stand_at(scene);
        if (scene.passenger != in_the_taxi || stand < 0) return {-10.0};
        scene.passenger = stand;
        return stand == scene.destination ? Outcome{20.0, true} : Outcome{-1.0};
    }

    // Every scene in which the passenger waits at a stand other than their destination is as likely
    // as any other.
    static const std::array<double, 500>& starts() {
        static const auto cumulated = [] {
            std::array<double, 500> sums;
            double sum = 0.0;
            for (size_t i = 0; i < sums.size(); ++i) {
                const Scene scene = decode(static_cast<int64_t>(i));
                const bool waits =
                    scene.passenger < in_the_taxi && scene.passenger != scene.destination;
                sums[i] = sum += waits ? 1.0 / 300.0 : 0.0;
            }
            return sums;
        }();
        return cumulated;
    }
};

}  // namespace envfleet
