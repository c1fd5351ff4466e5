// BipedalWalker: two legs with hips and knees, to be moved so that the hull above them gets ahead.
// In Gymnasium's order of operations; the cost of the motors is in single precision.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/box2d/history.h"
#include "envs/box2d/scene.h"
#include "envs/box2d/terrain.h"
#include "envs/box2d/tree_nodes.h"

namespace envfleet {

// How far it is to the ground in one direction.
class LidarRay final : public b2RayCastCallback {
  public:
    void cast(const b2World& world, b2Vec2 from, b2Vec2 to) {
        fraction = 1.0f;
        end = to;
        world.RayCast(this, from, to);
    }
    float32 ReportFixture(b2Fixture* fixture, const b2Vec2& where, const b2Vec2&,
                          float32 hit) override {
        if ((fixture->GetFilterData().categoryBits & 1) == 0) return -1;
        end = where;
        fraction = hit;
        return hit;
    }

    float fraction = 1.0f;
    b2Vec2 end{0, 0};
};

// The ground and the walker, in a world that outlives its episodes.
class WalkerScene {
  public:
    static constexpr double scale = 30.0;
    static constexpr double leg_down = -8 / scale;
    static constexpr double leg_width = 8 / scale;
    static constexpr double leg_height = 34 / scale;
    static constexpr double motor_torque = 80;

    void clear() {
        world_.SetContactListener(nullptr);
        for (b2Body* body : ground_) world_.DestroyBody(body);
        if (hull != nullptr) {
            world_.DestroyBody(hull);
            for (b2Body* leg : legs) world_.DestroyBody(leg);
        }
        ground_.clear();
        hull = nullptr;
        list_nodes(world_, free_nodes_);
        world_.SetContactListener(&touch);
    }

    void build_ground(Rng& rng, bool hardcore) {
        TerrainMaker(terrain_, rng, hardcore).run();
        for (const auto& corners : terrain_.boxes) {
            const b2PolygonShape shape = polygon(corners);
            ground_.push_back(add_static(world_, solid(shape, 0.0, friction)));
        }
        for (size_t i = 0; i + 1 < Terrain::length; ++i) {
            const b2EdgeShape shape = edge(point(terrain_.x[i], terrain_.y[i]),
                                           point(terrain_.x[i + 1], terrain_.y[i + 1]));
            ground_.push_back(add_static(world_, solid(shape, 0.0, friction)));
        }
        std::reverse(ground_.begin(), ground_.end());  // to be destroyed in this order
    }

    void build_hull(double push) {
        constexpr std::array<std::array<double, 2>, 5> outline = {{{-30 / scale, 9 / scale},
                                                                   {6 / scale, 9 / scale},
                                                                   {34 / scale, 1 / scale},
                                                                   {34 / scale, -8 / scale},
                                                                   {-30 / scale, -8 / scale}}};
        const b2PolygonShape shape = polygon(outline);
        hull = add_dynamic(world_, point(start_x, start_y), 0.0,
                           solid(shape, 5.0, 0.1, 0x0020, 0x001));
        hull->ApplyForceToCenter(point(push, 0), true);
    }

    void build_legs() {
        const b2PolygonShape thigh_shape = box(leg_width / 2, leg_height / 2);
        const b2PolygonShape shin_shape = box(0.8 * leg_width / 2, leg_height / 2);
        const b2FixtureDef thigh = solid(thigh_shape, 1.0, 0.2f, 0x0020, 0x001);
        const b2FixtureDef shin = solid(shin_shape, 1.0, 0.2f, 0x0020, 0x001);
        for (const int side : {-1, 1}) {
            const size_t first = side < 0 ? 0 : 2;
            b2Body* upper = add_dynamic(world_, point(start_x, start_y - leg_height / 2 - leg_down),
                                        side * 0.05, thigh);
            joints[first] =
                add_hinge(world_, {hull, upper, point(0, leg_down), point(0, leg_height / 2),
                                   motor_torque, static_cast<double>(side), -0.8, 1.1});
            b2Body* lower = add_dynamic(
                world_, point(start_x, start_y - leg_height * 3 / 2 - leg_down), side * 0.05, shin);
            joints[first + 1] =
                add_hinge(world_, {upper, lower, point(0, -leg_height / 2),
                                   point(0, leg_height / 2), motor_torque, 1.0, -1.6, -0.1});
            legs[first] = upper;
            legs[first + 1] = lower;
        }
        touch.watch(hull, {legs[1], legs[3]});
    }

    void advance() { envfleet::advance(world_); }

    void cast_rays() {
        constexpr double range = 160 / scale;
        const b2Vec2 from = hull->GetPosition();
        for (size_t i = 0; i < rays.size(); ++i) {
            const double angle = 1.5 * static_cast<double>(i) / 10.0;
            const double x = from.x + std::sin(angle) * range;
            rays[i].cast(world_, from, point(x, from.y - std::cos(angle) * range));
        }
    }

    // What the world remembered of earlier episodes when this one began.
    const std::vector<int32>& memory() const { return free_nodes_; }
    void remember(const std::vector<int32>& memory) { order_nodes(world_, memory); }

    b2Body* hull = nullptr;
    std::array<b2Body*, 4> legs{};  // left thigh and shin, right thigh and shin
    std::array<b2RevoluteJoint*, 4> joints{};
    std::array<LidarRay, 10> rays;
    Touch touch;

  private:
    static constexpr double friction = 2.5;
    static constexpr double start_x = Terrain::step * Terrain::start_pad / 2;
    static constexpr double start_y = Terrain::height + 2 * leg_height;

    b2World world_{b2Vec2(0, -10)};
    Terrain terrain_;
    std::vector<b2Body*> ground_;
    std::vector<int32> free_nodes_;
};

// The poses of the hull and the legs, then where each ray of the lidar ends.
inline Value as_value(const std::unique_ptr<WalkerScene>& scene) {
    if (scene->hull == nullptr) return std::vector<double>{};
    const auto& legs = scene->legs;
    Value value = poses_of({scene->hull, legs[0], legs[1], legs[2], legs[3]});
    auto& numbers = std::get<std::vector<double>>(value);
    for (const LidarRay& ray : scene->rays) numbers.insert(numbers.end(), {ray.end.x, ray.end.y});
    return value;
}
inline void assign(std::string_view name, const Value&, std::unique_ptr<WalkerScene>&) {
    refuse_value(name, "left alone: bodies move by forces");
}

struct BipedalWalker {
    struct Params {
        bool hardcore = false;
    };
    using Action = const float*;  // hip and knee of the left leg, hip and knee of the right one
    static size_t action_size(const Params&) { return 4; }
    using StoredAction = std::array<float, 4>;

    struct State {
        std::unique_ptr<WalkerScene> scene = std::make_unique<WalkerScene>();
        History<Params, StoredAction> history;
        Seen<std::optional<double>> prev_shaping;
        Seen<bool> game_over;
        std::array<float, 24> observation{};
    };

    static void reset(State& s, Rng& rng, const Params& p) {
        s.history.begin(rng, p);
        s.scene->clear();
        s.scene->build_ground(rng, p.hardcore);
        draw_clouds(rng);
        s.scene->build_hull(rng.uniform(-5, 5));
        s.scene->build_legs();
        s.prev_shaping.value.reset();
        play(s, StoredAction{});
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const StoredAction kept = {action[0], action[1], action[2], action[3]};
        check_turn(p, kept);
        s.history.add(p, kept);
        return play(s, kept);
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {24 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        std::copy(s.observation.begin(), s.observation.end(), out.leaf<float>(0));
    }

    static auto parameters() { return std::tuple(field("hardcore", &Params::hardcore)); }
    static auto variables() {
        return std::tuple(
            field("game_over", &State::game_over), field("prev_shaping", &State::prev_shaping),
            field("_poses", &State::scene), field("_random_state_at_reset", &State::history));
    }

    // The world's memory, its length first, then the history.
    static std::vector<std::byte> save(const State& s) {
        std::vector<std::byte> bytes;
        if (!s.history.begun) return bytes;
        write(bytes, uint64_t{s.scene->memory().size()});
        for (const int32 node : s.scene->memory()) write(bytes, node);
        s.history.write_to(bytes, parameters());
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
    // Clouds are for the eye, but each of them takes random numbers.
    static void draw_clouds(Rng& rng) {
        constexpr int clouds = Terrain::length / 20, numbers = 1 + 2 * 5;
        for (int i = 0; i < clouds * numbers; ++i) rng.random();
    }

    static void check_turn(const Params&, const StoredAction& action) {
        if (std::any_of(action.begin(), action.end(), [](float a) { return std::isnan(a); })) {
            throw std::invalid_argument("the action holds NaN, expected numbers from -1 to 1.");
        }
    }

    static void replay(State& s, SnapshotReader reader) {
        const std::vector<int32> memory = read_memory(reader);
        const auto past = History<Params, StoredAction>::read(reader, parameters(), check_turn);
        s.scene->remember(memory);
        Rng rng = past.start;
        reset(s, rng, past.params);
        for (const auto& turn : past.turns) {
            s.history.add(turn.params, turn.action);
            play(s, turn.action);
        }
    }

    static std::vector<int32> read_memory(SnapshotReader& reader) {
        constexpr uint64_t most_nodes = 1 << 16;  // a world has some hundreds
        uint64_t count = 0;
        reader.read(count);
        if (count == 0 || count > most_nodes) refuse_snapshot("no world has so many nodes");
        std::vector<int32> memory(count);
        std::vector<uint8_t> seen(count);
        for (int32& node : memory) {
            reader.read(node);
            if (node < 0 || static_cast<uint64_t>(node) >= count || seen[node]++ != 0) {
                refuse_snapshot("the world's nodes are no longer each there once");
            }
        }
        return memory;
    }

    static constexpr std::array<float, 4> motor_speeds = {4, 6, 4, 6};

    static float effort(float action) { return std::min(std::abs(action), 1.0f); }

    static Outcome play(State& s, const StoredAction& action) {
        WalkerScene& scene = *s.scene;
        constexpr auto torque = static_cast<float>(WalkerScene::motor_torque);
        for (size_t i = 0; i < 4; ++i) {
            const float sign = action[i] > 0 ? 1.0f : action[i] < 0 ? -1.0f : 0.0f;
            scene.joints[i]->SetMotorSpeed(motor_speeds[i] * sign);
            scene.joints[i]->SetMaxMotorTorque(torque * effort(action[i]));
        }
        scene.advance();
        scene.cast_rays();
        look(s);
        return judge(s, action);
    }

    static void look(State& s) {
        constexpr double fps = 50, width = 600 / WalkerScene::scale;
        constexpr double height = 400 / WalkerScene::scale;
        const WalkerScene& scene = *s.scene;
        const b2Vec2 velocity = scene.hull->GetLinearVelocity();
        auto angle = [&](size_t i) { return double{scene.joints[i]->GetJointAngle()}; };
        auto speed = [&](size_t i) {
            return double{scene.joints[i]->GetJointSpeed()} / double{motor_speeds[i]};
        };
        auto grounded = [&](size_t i) { return scene.touch.grounded[i] ? 1.0 : 0.0; };
        const std::array<double, 14> seen = {scene.hull->GetAngle(),
                                             2.0 * scene.hull->GetAngularVelocity() / fps,
                                             0.3 * velocity.x * width / fps,
                                             0.3 * velocity.y * height / fps,
                                             angle(0),
                                             speed(0),
                                             angle(1) + 1.0,
                                             speed(1),
                                             grounded(0),
                                             angle(2),
                                             speed(2),
                                             angle(3) + 1.0,
                                             speed(3),
                                             grounded(1)};
        std::copy(seen.begin(), seen.end(), s.observation.begin());
        for (size_t i = 0; i < scene.rays.size(); ++i) {
            s.observation[seen.size() + i] = scene.rays[i].fraction;
        }
    }

    static Outcome judge(State& s, const StoredAction& action) {
        constexpr double end = (Terrain::length - Terrain::grass) * Terrain::step;
        const WalkerScene& scene = *s.scene;
        const double x = scene.hull->GetPosition().x;
        s.game_over.value = scene.touch.crashed;
        double shaping = 130 * x / WalkerScene::scale;
        shaping -= 5.0 * std::abs(double{scene.hull->GetAngle()});
        auto reward =
            static_cast<float>(s.prev_shaping.value ? shaping - *s.prev_shaping.value : 0.0);
        s.prev_shaping.value = shaping;
        for (const float each : action) {
            reward -= static_cast<float>(0.00035 * WalkerScene::motor_torque) * effort(each);
        }
        if (scene.touch.crashed || x < 0) return {-100.0, true};
        return {reward, x > end};
    }
};

}  // namespace envfleet
