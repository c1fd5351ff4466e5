// LunarLander: land between the flags, with a main engine and two that turn, and as little fuel as
// possible. In Gymnasium's order of operations.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/box2d/history.h"
#include "envs/box2d/scene.h"

namespace envfleet {

// The moon, the lander and its legs: a new world every episode.
class LanderScene {
  public:
    static constexpr double scale = 30.0;
    static constexpr double width = 600 / scale;
    static constexpr double height = 400 / scale;
    static constexpr double pad_height = height / 4;
    static constexpr double leg_away = 20;
    static constexpr double leg_down = 18;

    void build_moon(Rng& rng, double gravity) {
        world_.emplace(point(0, gravity));
        world_->SetContactListener(&touch);
        std::array<double, chunks + 1> heights;
        for (double& each : heights) each = rng.uniform(0, height / 2);
        for (size_t i = chunks / 2 - 2; i <= chunks / 2 + 2; ++i) heights[i] = pad_height;
        const b2EdgeShape bottom = edge(point(0, 0), point(width, 0));
        moon_ = add_static(*world_, solid(bottom, 0.0, 0.2f));
        for (size_t i = 0; i + 1 < chunks; ++i) {
            const b2EdgeShape slope = edge(surface(heights, i), surface(heights, i + 1));
            const b2FixtureDef fixture = solid(slope, 0.0, 0.1);
            moon_->CreateFixture(&fixture);
        }
    }

    void build_lander() {
        constexpr std::array<std::array<double, 2>, 6> outline = {{{-14 / scale, 17 / scale},
                                                                   {-17 / scale, 0 / scale},
                                                                   {-17 / scale, -10 / scale},
                                                                   {17 / scale, -10 / scale},
                                                                   {17 / scale, 0 / scale},
                                                                   {14 / scale, 17 / scale}}};
        const b2PolygonShape shape = polygon(outline);
        lander = add_dynamic(*world_, point(width / 2, height), 0.0,
                             solid(shape, 5.0, 0.1, 0x0010, 0x001));
    }

    void build_legs() {
        const b2PolygonShape shape = box(2 / scale, 8 / scale);
        for (const int side : {-1, 1}) {
            b2Body* leg = add_dynamic(*world_, point(width / 2 - side * leg_away / scale, height),
                                      side * 0.05, solid(shape, 1.0, 0.2f, 0x0020, 0x001));
            add_hinge(*world_,
                      {lander, leg, point(0, 0), point(side * leg_away / scale, leg_down / scale),
                       40, 0.3 * side, side < 0 ? 0.9 - 0.5 : -0.9, side < 0 ? 0.9 : -0.9 + 0.5});
            legs[side < 0 ? 0 : 1] = leg;
        }
        touch.watch(lander, legs);
    }

    void advance() { envfleet::advance(*world_); }

    b2Body* lander = nullptr;
    std::array<b2Body*, 2> legs{};
    Touch touch;

  private:
    static constexpr size_t chunks = 11;

    // The ground's height above chunk i: that of its neighbours averaged in, round the corner too.
    static b2Vec2 surface(const std::array<double, chunks + 1>& heights, size_t i) {
        const double before = heights[i == 0 ? chunks : i - 1];
        return point(width / (chunks - 1) * static_cast<double>(i),
                     0.33 * (before + heights[i] + heights[i + 1]));
    }

    std::optional<b2World> world_;
    b2Body* moon_ = nullptr;
};

inline Value as_value(const std::unique_ptr<LanderScene>& scene) {
    if (scene->lander == nullptr) return std::vector<double>{};
    return poses_of({scene->lander, scene->legs[0], scene->legs[1]});
}
inline void assign(std::string_view name, const Value&, std::unique_ptr<LanderScene>&) {
    refuse_value(name, "left alone: bodies move by forces");
}

template <bool is_continuous>
struct LunarLander {
    struct Params {
        double gravity = -10.0;
        double wind_power = 15.0;
        double turbulence_power = 1.5;
        bool enable_wind = false;
        bool continuous = is_continuous;

        // Forces that Box2D can compute with, in single precision.
        void check() const {
            for (const double number : {gravity, wind_power, turbulence_power}) {
                if (!(std::abs(number) <= 1e6)) {
                    throw std::invalid_argument(
                        "gravity, wind_power and turbulence_power must lie between -1e6 and 1e6.");
                }
            }
        }
        void prepare() const {
            check();
            if (!(-12.0 < gravity && gravity < 0.0)) {
                throw std::invalid_argument("gravity must be between -12 and 0, got " +
                                            std::to_string(gravity) + ".");
            }
        }
    };
    // Do nothing, left engine, main engine, right engine; or the power of the main engine, and of
    // the left and right ones.
    using Action = std::conditional_t<is_continuous, const float*, int64_t>;
    static constexpr int64_t num_actions = 4;
    static size_t action_size(const Params&) { return 2; }

    using StoredAction = std::conditional_t<is_continuous, std::array<float, 2>, int64_t>;
    struct State {
        std::unique_ptr<LanderScene> scene = std::make_unique<LanderScene>();
        History<Params, StoredAction> history;
        Seen<std::optional<double>> prev_shaping;
        Seen<bool> game_over;
        Seen<int64_t> wind_idx, torque_idx;
        std::array<float, 8> observation{};
    };

    static void reset(State& s, Rng& rng, const Params& p) {
        s.history.begin(rng, p);
        s.scene->build_moon(rng, p.gravity);
        s.scene->build_lander();
        const double push = rng.uniform(-1000.0, 1000.0);
        s.scene->lander->ApplyForceToCenter(point(push, rng.uniform(-1000.0, 1000.0)), true);
        if (p.enable_wind) {
            s.wind_idx.value = rng.integers(-9999, 9999);
            s.torque_idx.value = rng.integers(-9999, 9999);
        }
        s.scene->build_legs();
        s.prev_shaping.value.reset();
        play(s, rng, p, StoredAction{});
    }

    static Outcome step(State& s, Rng& rng, const Params& p, Action action) {
        const StoredAction kept = stored(action);
        s.history.add(p, kept);
        return play(s, rng, p, kept);
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {8 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        std::copy(s.observation.begin(), s.observation.end(), out.leaf<float>(0));
    }

    static auto parameters() {
        return std::tuple(field("gravity", &Params::gravity),
                          field("enable_wind", &Params::enable_wind),
                          field("wind_power", &Params::wind_power),
                          field("turbulence_power", &Params::turbulence_power));
    }
    static auto constants() { return std::tuple(field("continuous", &Params::continuous)); }
    static auto variables() {
        return std::tuple(
            field("game_over", &State::game_over), field("prev_shaping", &State::prev_shaping),
            field("wind_idx", &State::wind_idx), field("torque_idx", &State::torque_idx),
            field("_poses", &State::scene), field("_random_state_at_reset", &State::history));
    }

    static std::vector<std::byte> save(const State& s) {
        std::vector<std::byte> bytes;
        if (s.history.begun) s.history.write_to(bytes, parameters());
        return bytes;
    }
    static void load(State& s, std::span<const std::byte> bytes) {
        State again;
        try {
            if (!bytes.empty()) replay(again, SnapshotReader(bytes));
        } catch (const b2AssertException&) {
            refuse_snapshot("Box2D cannot play it again");
        }
        s = std::move(again);
    }

  private:
    static void check_turn(const Params& p, const StoredAction& action) {
        p.check();
        if constexpr (!is_continuous) check_index("an action", action, num_actions);
    }
    static void replay(State& s, SnapshotReader reader) {
        const auto past = History<Params, StoredAction>::read(reader, parameters(), check_turn);
        Rng rng = past.start;
        reset(s, rng, past.params);
        for (const auto& turn : past.turns) {
            s.history.add(turn.params, turn.action);
            play(s, rng, turn.params, turn.action);
        }
    }

    // How strongly the engines fire: from 0 to 1; and which way the ones that turn.
    struct Thrust {
        double main = 0.0;
        double side = 0.0;
        double direction = 0.0;
    };

    static StoredAction stored(Action action) {
        if constexpr (is_continuous) {
            return {action[0], action[1]};
        } else {
            return action;
        }
    }

    static Thrust thrust(int64_t action) {
        if (action == 2) return {.main = 1.0};
        if (action == 1 || action == 3) {
            return {.side = 1.0, .direction = static_cast<double>(action - 2)};
        }
        return {};
    }
    static Thrust thrust(const std::array<float, 2>& action) {
        Thrust thrust;
        const double main = std::clamp(double{action[0]}, -1.0, 1.0);
        const double side = std::clamp(double{action[1]}, -1.0, 1.0);
        if (main > 0.0) thrust.main = (main + 1.0) * 0.5;
        if (std::abs(side) > 0.5) {
            thrust.side = std::abs(side);
            thrust.direction = side > 0 ? 1.0 : -1.0;
        }
        return thrust;
    }

    static Outcome play(State& s, Rng& rng, const Params& p, const StoredAction& action) {
        const auto& grounded = s.scene->touch.grounded;
        if (p.enable_wind && !(grounded[0] || grounded[1])) blow(s, p);
        const Thrust power = thrust(action);
        fire(*s.scene->lander, rng, power);
        s.scene->advance();
        return judge(s, power);
    }

    static void blow(State& s, const Params& p) {
        auto gust = [](Seen<int64_t>& index) {
            const auto time = static_cast<double>(index.value++);
            return std::tanh(std::sin(0.02 * time) + std::sin(std::numbers::pi * 0.01 * time));
        };
        b2Body& lander = *s.scene->lander;
        lander.ApplyForceToCenter(point(gust(s.wind_idx) * p.wind_power, 0.0), true);
        lander.ApplyTorque(static_cast<float>(gust(s.torque_idx) * p.turbulence_power), true);
    }

    static void fire(b2Body& lander, Rng& rng, const Thrust& power) {
        constexpr double scale = LanderScene::scale;
        const double angle = lander.GetAngle();
        const double tip[2] = {std::sin(angle), std::cos(angle)};
        const double side[2] = {-tip[1], tip[0]};
        double jitter[2];
        for (double& each : jitter) each = rng.uniform(-1.0, 1.0) / scale;
        auto push = [&lander](double x, double y, double strength, double power, b2Vec2 where) {
            lander.ApplyLinearImpulse(point(-x * strength * power, -y * strength * power), where,
                                      true);
        };
        if (power.main > 0.0) {
            const double down = 4 / scale + 2 * jitter[0];
            const double x = tip[0] * down + side[0] * jitter[1];
            const double y = -tip[1] * down - side[1] * jitter[1];
            const b2Vec2 at = lander.GetPosition();
            push(x, y, 13.0, power.main, point(at.x + x, at.y + y));
        }
        if (power.side > 0.0) {
            const double away = 3 * jitter[1] + power.direction * 12 / scale;
            const double x = tip[0] * jitter[0] + side[0] * away;
            const double y = -tip[1] * jitter[0] - side[1] * away;
            const b2Vec2 at = lander.GetPosition();
            push(x, y, 0.6, power.side,
                 point(at.x + x - tip[0] * 17 / scale, at.y + y + tip[1] * 14 / scale));
        }
    }

    static Outcome judge(State& s, const Thrust& power) {
        const LanderScene& scene = *s.scene;
        const std::array<double, 8> seen = look(scene);
        std::copy(seen.begin(), seen.end(), s.observation.begin());
        s.game_over.value = scene.touch.crashed;
        const double shaping = -100 * std::sqrt(seen[0] * seen[0] + seen[1] * seen[1]) -
                               100 * std::sqrt(seen[2] * seen[2] + seen[3] * seen[3]) -
                               100 * std::abs(seen[4]) + 10 * seen[6] + 10 * seen[7];
        double reward = s.prev_shaping.value ? shaping - *s.prev_shaping.value : 0.0;
        s.prev_shaping.value = shaping;
        reward -= power.main * 0.30;
        reward -= power.side * 0.03;
        if (!scene.lander->IsAwake()) return {100.0, true};
        if (scene.touch.crashed || std::abs(seen[0]) >= 1.0) return {-100.0, true};
        return {reward};
    }

    static std::array<double, 8> look(const LanderScene& scene) {
        constexpr double fps = 50, half_width = LanderScene::width / 2;
        constexpr double half_height = LanderScene::height / 2;
        constexpr double rest =
            LanderScene::pad_height + LanderScene::leg_down / LanderScene::scale;
        const b2Vec2 position = scene.lander->GetPosition();
        const b2Vec2 velocity = scene.lander->GetLinearVelocity();
        return {(position.x - half_width) / half_width,
                (position.y - rest) / half_height,
                velocity.x * half_width / fps,
                velocity.y * half_height / fps,
                scene.lander->GetAngle(),
                20.0 * scene.lander->GetAngularVelocity() / fps,
                scene.touch.grounded[0] ? 1.0 : 0.0,
                scene.touch.grounded[1] ? 1.0 : 0.0};
    }
};

}  // namespace envfleet
