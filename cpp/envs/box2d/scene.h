// What the environments on Box2D share: building scenes, and noticing what touches the ground.
//
// Gymnasium computes in double precision and hands the results to Box2D, which rounds them to
// single; so does everything here.
#pragma once

#include <Box2D/Box2D.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engine/fields.h"

namespace envfleet {

inline b2Vec2 point(double x, double y) { return {static_cast<float>(x), static_cast<float>(y)}; }

inline b2FixtureDef solid(const b2Shape& shape, double density, double friction,
                          uint16_t category = 0x0001, uint16_t collides_with = 0xFFFF) {
    b2FixtureDef definition;
    definition.shape = &shape;
    definition.density = static_cast<float>(density);
    definition.friction = static_cast<float>(friction);
    definition.filter.categoryBits = category;
    definition.filter.maskBits = collides_with;
    return definition;
}

inline b2PolygonShape box(double half_width, double half_height) {
    b2PolygonShape shape;
    shape.SetAsBox(static_cast<float>(half_width), static_cast<float>(half_height));
    return shape;
}

template <size_t count>
b2PolygonShape polygon(const std::array<std::array<double, 2>, count>& corners) {
    std::array<b2Vec2, count> vertices;
    for (size_t i = 0; i < count; ++i) vertices[i] = point(corners[i][0], corners[i][1]);
    b2PolygonShape shape;
    shape.Set(vertices.data(), static_cast<int32>(count));
    return shape;
}

inline b2EdgeShape edge(b2Vec2 from, b2Vec2 to) {
    b2EdgeShape shape;
    shape.Set(from, to);
    return shape;
}

inline b2Body* add_static(b2World& world, const b2FixtureDef& fixture) {
    const b2BodyDef definition;
    b2Body* body = world.CreateBody(&definition);
    body->CreateFixture(&fixture);
    return body;
}

inline b2Body* add_dynamic(b2World& world, b2Vec2 position, double angle,
                           const b2FixtureDef& fixture) {
    b2BodyDef definition;
    definition.type = b2_dynamicBody;
    definition.position = position;
    definition.angle = static_cast<float>(angle);
    b2Body* body = world.CreateBody(&definition);
    body->CreateFixture(&fixture);
    return body;
}

// A motor that turns one body against another, as far as the limits let it.
struct Hinge {
    b2Body* body;
    b2Body* limb;
    b2Vec2 anchor_of_body;
    b2Vec2 anchor_of_limb;
    double torque;
    double speed;
    double lower;
    double upper;
};

inline b2RevoluteJoint* add_hinge(b2World& world, const Hinge& hinge) {
    b2RevoluteJointDef definition;
    definition.bodyA = hinge.body;
    definition.bodyB = hinge.limb;
    definition.localAnchorA = hinge.anchor_of_body;
    definition.localAnchorB = hinge.anchor_of_limb;
    definition.enableMotor = true;
    definition.enableLimit = true;
    definition.maxMotorTorque = static_cast<float>(hinge.torque);
    definition.motorSpeed = static_cast<float>(hinge.speed);
    definition.lowerAngle = static_cast<float>(hinge.lower);
    definition.upperAngle = static_cast<float>(hinge.upper);
    // Angles count from how the bodies stand now: the default of Box2D's Python package, not
    // Box2D's.
    definition.referenceAngle =
        static_cast<float>(double{hinge.limb->GetAngle()} - double{hinge.body->GetAngle()});
    return static_cast<b2RevoluteJoint*>(world.CreateJoint(&definition));
}

// Whether the hull has hit anything, and which feet stand on the ground. As in Gymnasium, a foot
// that lifts off one piece of ground counts as lifted even if it still stands on another.
class Touch final : public b2ContactListener {
  public:
    void watch(b2Body* hull, std::array<b2Body*, 2> feet) {
        hull_ = hull;
        feet_ = feet;
        crashed = false;
        grounded = {};
    }

    void BeginContact(b2Contact* contact) override {
        if (concerns(contact, hull_)) crashed = true;
        set_grounded(contact, true);
    }
    void EndContact(b2Contact* contact) override { set_grounded(contact, false); }

    bool crashed = false;
    std::array<bool, 2> grounded{};

  private:
    static bool concerns(b2Contact* contact, const b2Body* body) {
        return contact->GetFixtureA()->GetBody() == body ||
               contact->GetFixtureB()->GetBody() == body;
    }
    void set_grounded(b2Contact* contact, bool value) {
        for (size_t i = 0; i < 2; ++i) {
            if (concerns(contact, feet_[i])) grounded[i] = value;
        }
    }

    b2Body* hull_ = nullptr;
    std::array<b2Body*, 2> feet_{};
};

// Gymnasium's fiftieth of a second, with thirty times the iterations Box2D recommends.
inline void advance(b2World& world) { world.Step(static_cast<float>(1.0 / 50), 6 * 30, 2 * 30); }

// Position and angle of each body, in a row.
inline Value poses_of(std::initializer_list<const b2Body*> bodies) {
    std::vector<double> poses;
    for (const b2Body* body : bodies) {
        poses.insert(poses.end(), {body->GetPosition().x, body->GetPosition().y, body->GetAngle()});
    }
    return poses;
}

// A variable to be read, not set: what is known about an episode must follow from its actions, or
// it could not be played again.
template <class T>
struct Seen {
    T value{};
};
template <class T>
Value as_value(const Seen<T>& seen) {
    return as_value(seen.value);
}
template <class T>
void assign(std::string_view name, const Value&, Seen<T>&) {
    refuse_value(name, "left alone: it follows from the actions");
}

}  // namespace envfleet
